"""What is told of a value that does not fit: its kind and size, never what it holds; and what was expected instead."""

import json
from collections.abc import Mapping
from typing import Any, Final

_LONGEST: Final = 200
_KINDS: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
TYPES: Final = tuple(_KINDS.values())
_WORDS: Final[Mapping[str, str]] = {
    "false": "nothing: the schema has no such place",
    "anyOf": "one of the alternatives of `anyOf`",
    "oneOf": "exactly one of the alternatives of `oneOf`",
    "not": "anything but what `not` describes",
    "uniqueItems": "items that are all different",
    "contains": "items as `contains`, `minContains` and `maxContains` count them",
    "propertyNames": "names as `propertyNames` describes them",
}


def kind_of(value: Any) -> str:
    """As JSON Schema calls it."""
    return _KINDS[type(value)]


def seen(value: Any, missing: str | None = None) -> str:
    match value:
        case None | bool():
            return "null" if value is None else "true or false"
        case str():
            return f"a text of {len(value)} characters"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case list():
            return f"a list of {len(value)} items"
    return f"an object of {len(value)} fields" if missing is None else f"an object without {_named(missing)}"


def expected(keyword: str, asked: Any, missing: str | None = None) -> str:
    """In words; `asked` is what the schema has under the keyword."""
    if missing is not None:
        return f"the field {_named(missing)}"
    if keyword in _WORDS:
        return _WORDS[keyword]
    if keyword == "type":
        return " or ".join([asked] if isinstance(asked, str) else asked)
    before = {"enum": "one of", "format": "text in the format", "pattern": "text that matches"}.get(keyword, keyword)
    return f"{before} {_shown(asked)}"


def _named(field: str) -> str:
    return repr(field[:_LONGEST])


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
