"""Turns the validator's errors into refusals that name file, line and column in the user's words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from schemas.errors import Place, Refused
from topology.names import hint, nearest
from topology.shapes import Spec
from topology.yaml_source import Document, Path

MAX_LISTED = 50

_EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}

_COUNTED = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}

Model = TypeVar("Model", bound=Spec)


class Problems(Exception):
    """All that is wrong with what was read, in order of appearance."""

    def __init__(self, errors: Sequence[Refused]) -> None:
        super().__init__(f"{len(errors)} problems")
        self.errors = list(errors)


def validate(model: type[Model], value: Any, document: Document, base: Path = ()) -> Model:
    """Validate a part of `document` that stands at `base`. Raises Problems."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = [_refused(model, one, document, base) for one in error.errors(include_url=False)]
        raise Problems(found) from error


def combined(errors: Sequence[Refused]) -> Refused:
    """One refusal for many: it is the first of them, and its details list them all."""
    first = errors[0]
    listed = [described(error) for error in errors[:MAX_LISTED]]
    return Refused(first.code, first.message, first.place, {**first.details, "errors": listed})


def described(error: Refused) -> dict[str, object]:
    """A refusal as an item of the list in a problem document."""
    place = error.place
    where = {"file": place.file, "line": place.line, "column": place.column} if place else {}
    return {"code": error.code, "message": error.message, **where}


def _refused(model: type[Spec], error: ErrorDetails, document: Document, base: Path) -> Refused:
    context = error.get("ctx", {})
    location = (*_real_path(document, base, error["loc"]), *context.get("path", ()))
    code = _code(model, error)
    message = _message(model, error)
    offset = context.get("offset")
    place: Place
    if error["type"] == "extra_forbidden":
        place = document.key_place(location)
    elif isinstance(offset, int):
        place = document.text_place(location, offset)
    else:
        place = document.place(location)
    return Refused(code, message, place)


def _real_path(document: Document, base: Path, location: Sequence[str | int]) -> Path:
    """The path in the document: the validator's location without the names of a union's branches, and
    without a key that is missing.
    """
    path = base
    for part in location:
        if document.has((*path, part)):
            path = (*path, part)
    return path


def _code(model: type[Spec], error: ErrorDetails) -> str:
    if error["type"].startswith("E_"):
        return error["type"]
    if error["type"] == "missing":
        owner = _model_at(model, error["loc"][:-1])
        return owner.missing_codes.get(str(error["loc"][-1]), "E_SPEC_INVALID")
    return "E_SPEC_INVALID"


def _message(model: type[Spec], error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    kind = error["type"]
    name = _name_of(error["loc"])
    if kind.startswith("E_"):
        return str(context["text"])
    if kind == "extra_forbidden":
        return _unknown_key(_model_at(model, error["loc"][:-1]), name)
    if kind == "missing":
        return _missing_key(_model_at(model, error["loc"][:-1]), name)
    if kind in _EXPECTED:
        return f"`{name}` must be {_EXPECTED[kind]}, not {shown(error['input'])}"
    if kind == "literal_error":
        seen = error["input"]
        options = _options(str(context["expected"]))
        near = nearest(seen, options) if isinstance(seen, str) else None
        closing = f"; did you mean `{near}`?" if near else ""
        return f"`{name}` must be {context['expected']}, not {shown(seen)}{closing}"
    return _bound(name, error)


def _bound(name: str, error: ErrorDetails) -> str:
    """What is out of bounds: entries are counted, values shown."""
    context = error.get("ctx", {})
    if error["type"] in _COUNTED:
        word, bound = _COUNTED[error["type"]]
        return f"`{name}` has {word} {context[bound]} entries, not {context['actual_length']}"
    return f"`{name}`: {error['msg'][:1].lower()}{error['msg'][1:]}, not {shown(error['input'])}"


def _name_of(location: Sequence[str | int]) -> str:
    if not location:
        return "this"
    last = location[-1]
    return f"{location[-2]}[{last}]" if isinstance(last, int) and len(location) > 1 else str(last)


def _options(expected: str) -> list[str]:
    return [part for part in expected.split("'") if part not in ("", ", ", " or ")]


def _unknown_key(model: type[Spec], name: str) -> str:
    if name in model.later:
        return f"`{name}` is not available in this version; remove it"
    return f"`{name[:80]}` is not known here{hint(name, _keys(model))}"


def _missing_key(model: type[Spec], name: str) -> str:
    if name == "timeout" and name in model.missing_codes:
        return "this step declares no timeout; add one, such as `timeout: 15s`"
    return f"`{name}` is missing"


def _keys(model: type[Spec]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[Spec], location: Sequence[str | int]) -> type[Spec]:
    """The model that validates the value at `location`. A union's branch is named in the location."""
    current = model
    candidates = [model]
    for part in location:
        fields = {field.alias or name: field for name, field in current.model_fields.items()}
        if isinstance(part, str) and part in fields:
            candidates = list(_models_in((fields[part].annotation, *fields[part].metadata)))
        elif isinstance(part, str):
            candidates = [one for one in candidates if getattr(one, "branch", None) == part] or candidates
        current = candidates[0] if candidates else current
    return current


def _models_in(annotations: Sequence[Any]) -> Iterator[type[Spec]]:
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, Spec):
            yield annotation
        else:
            yield from _models_in(get_args(annotation))


def shown(value: Any) -> str:
    """A value as a message shows it: short, and never the whole of a large one."""
    if isinstance(value, str):
        return f"the text `{value[:40]}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None:
        return "nothing"
    if isinstance(value, int | float):
        return f"`{str(value)[:40]}`" if abs(value) < 10**40 else "a very large number"
    return "a list" if isinstance(value, list) else "a mapping"
