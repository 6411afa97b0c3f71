"""Where data does not fit its schema: asked only of data that was found not to.

The library tells of every fault in every alternative, which for large data is more than a process has memory for. So
alternatives are asked here as one question with one answer, and the one that was meant is looked into by itself.
Every part of the schema becomes a definition of its own, so that a fault names its part.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from jsonschema_rs import Draft202012, Draft202012Validator, Registry, ValidationError, ValidationErrorKind

from schemas.event_schemas.dialect import Part, Path
from schemas.event_schemas.telling import expected, kind_of, seen

_HOME: Final = "urn:event-schema"
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_UNSEEN: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})  # what they ask hangs on the alternatives
_KEYWORD, _PLACE = 2, 3  # in the path of a fault, behind `$defs` and the part's name
_OTHER_NAME: Final = "*"
_MOST_WAYS: Final = 100
_NUMBER: Final = re.compile(r"\+?[0-9]{1,24}")


class Mismatch(NamedTuple):
    """`path` leads to the place in the data; so does `shown`, with a star for names that the schema does not have."""

    path: Path
    shown: Path
    seen: str
    expected: str


class _Fault(NamedTuple):
    """What a part of the schema does not take: the value at `path`. `missing` is the name of a field."""

    path: Path
    value: Any
    part: Part
    keyword: str
    missing: str | None


class Locator:
    def __init__(self, parts: Mapping[Path, Part], options: Mapping[str, Any]) -> None:
        self._parts = list(parts.values())
        self._numbers = {part.path: number for number, part in enumerate(self._parts)}
        self._options = options
        self._names = frozenset(name for part in self._parts for name in _names_in(part.schema))
        self._registry: Registry | None = None
        self._validators: dict[int, Draft202012Validator] = {}

    def find(self, data: Any, deepest: int) -> Mismatch:
        """The first place that does not fit, as deep as it can be told by asking `deepest` times."""
        number: int | None = 0
        value, found = data, None
        path: Path = ()
        for _ in range(deepest):
            fault = None if number is None else self._fault(number, value)
            if fault is None:
                break
            value, path = fault.value, (*path, *fault.path)
            found = Mismatch(path, self._shown(path), seen(value, fault.missing), self._expected(fault))
            number = self._meant(fault)
        return found or Mismatch((), (), seen(data), "nothing beside what the schema describes")

    def _fault(self, number: int, value: Any) -> _Fault | None:
        try:
            self._validator(number).validate(value)
        except ValidationError as exc:
            words = list(exc.schema_path)
            path, inside = _led(value, list(exc.instance_path), exc.instance)
            part = self._parts[int(words[1])]
            missing = exc.kind.property if isinstance(exc.kind, ValidationErrorKind.Required) else None
            return _Fault(path, inside, part, _keyword(part, words), missing)
        return None

    def _expected(self, fault: _Fault) -> str:
        schema = fault.part.schema
        return expected(fault.keyword, None if isinstance(schema, bool) else schema.get(fault.keyword), fault.missing)

    def _shown(self, path: Path) -> Path:
        return tuple(word if isinstance(word, int) or word in self._names else _OTHER_NAME for word in path)

    def _meant(self, fault: _Fault) -> int | None:
        """The one alternative that the value can be meant for."""
        if fault.keyword not in _ALTERNATIVES or isinstance(fault.part.schema, bool):
            return None
        found = [
            number
            for at in range(len(fault.part.schema[fault.keyword]))
            if self._may_be(number := self._numbers[*fault.part.path, fault.keyword, at], fault.value)
        ]
        return found[0] if len(found) == 1 else None

    def _may_be(self, number: int, value: Any) -> bool:
        for one in self._with_references(number):
            schema = one.schema
            if isinstance(schema, bool):
                return schema
            types = schema.get("type")
            if types is not None and kind_of(value) not in ([types] if isinstance(types, str) else types):
                return isinstance(value, int) and kind_of(value) == "integer" and "number" in types
            if isinstance(value, dict) and any(name not in value for name in schema.get("required", ())):
                return False
        return True

    def _with_references(self, number: int) -> Iterator[Part]:
        part = self._parts[number]
        yield part
        if not isinstance(part.schema, bool) and "$ref" in part.schema:
            yield from self._with_references(self._numbers[part.in_place[-1]])

    def _validator(self, number: int) -> Draft202012Validator:
        if self._registry is None:
            flat = {str(at): self._flat(part) for at, part in enumerate(self._parts)}
            self._registry = Registry([(_HOME, {"$defs": flat})], draft=Draft202012)
        if number not in self._validators:
            schema = {"$ref": f"{_HOME}#/$defs/{number}"}
            self._validators[number] = Draft202012Validator(schema, registry=self._registry, **self._options)
        return self._validators[number]

    def _flat(self, part: Part) -> Any:
        """The part with references in place of what is inside it."""
        if isinstance(part.schema, bool):
            return part.schema
        flat = {name: value for name, value in part.schema.items() if name != "$defs" and name not in _UNSEEN}
        if "$ref" in flat:
            flat["$ref"] = self._reference(part.in_place[-1])
        flat = {keyword: self._pointing(part.path, keyword, value) for keyword, value in flat.items()}
        questions = [{"not": {"not": {name: flat.pop(name)}}} for name in _ALTERNATIVES if name in flat]
        if questions:
            flat["allOf"] = [*flat.get("allOf", ()), *questions]
        return flat

    def _pointing(self, path: Path, keyword: str, value: Any) -> Any:
        at = (*path, keyword)
        if at in self._numbers:
            return {"$ref": self._reference(at)}
        if isinstance(value, list) and (*at, 0) in self._numbers:
            return [{"$ref": self._reference((*at, place))} for place in range(len(value))]
        if isinstance(value, dict) and any((*at, name) in self._numbers for name in value):
            return {name: {"$ref": self._reference((*at, name))} for name in value}
        return value

    def _reference(self, path: Path) -> str:
        return f"{_HOME}#/$defs/{self._numbers[path]}"


def _led(data: Any, words: list[str | int], wanted: Any) -> tuple[Path, Any]:
    """The path to the value, as the data has it. The library tells names that look like numbers as numbers, and leaves
    out empty ones: so it is looked for which of the ways ends at the value. Where that is not seen, the whole is told.
    """
    for path, value in islice(_ways(data, words), _MOST_WAYS):
        if type(value) is type(wanted) and value == wanted:
            return path, value
    return (), data


def _ways(data: Any, words: list[str | int]) -> Iterator[tuple[Path, Any]]:
    if not words:
        yield (), data
    for name in _names_for(data, words[0]) if words else ():
        yield from (((name, *path), value) for path, value in _ways(data[name], words[1:]))
    if isinstance(data, dict) and "" in data:
        yield from ((("", *path), value) for path, value in _ways(data[""], words))


def _names_for(data: Any, word: str | int) -> list[str | int]:
    if isinstance(data, list):
        return [word] if isinstance(word, int) and word < len(data) else []
    if not isinstance(data, dict):
        return []
    if isinstance(word, str):
        return [word] if word in data else []
    return [name for name in data if _NUMBER.fullmatch(name) and int(name) == word]


def _keyword(part: Part, words: list[str | int]) -> str:
    """Of the fault; where it is one of our questions, the alternatives that it asks about."""
    if len(words) <= _KEYWORD or isinstance(part.schema, bool):
        return "false"
    keyword = str(words[_KEYWORD])
    if keyword == "allOf":
        asked = [name for name in _ALTERNATIVES if name in part.schema]
        return asked[int(words[_PLACE]) - len(part.schema.get("allOf", ()))]
    return keyword


def _names_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        yield from schema.get("properties", ())
        yield from schema.get("required", ())
