"""The part of JSON Schema 2020-12 that may be declared, and what of it looks at one and the same value.

No reference leaves the schema, nothing is fetched, and every keyword that is taken has an effect: one that is not known
is refused rather than passed over. What a schema asks is known before any data comes (`weight`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from schemas import strict_json
from schemas.errors import Refused

Path = tuple[str | int, ...]
Schema = Mapping[str, Any] | bool

MAX_BYTES: Final = 64 * 1024
MAX_PARTS: Final = 1000
MAX_PATTERN: Final = 500
MAX_NESTED: Final = 64  # words of a path
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
FORMATS: Final = (
    "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid",
    "json-pointer",
)  # fmt: skip

# What stands behind a keyword: one schema, a list of them, or schemas by name.
_ONE = frozenset(
    {"not", "if", "then", "else", "items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames",
     "unevaluatedProperties"}
)  # fmt: skip
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_IN_PLACE = frozenset({"not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas"})
_PLAIN = frozenset(
    {"$ref", "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
     "maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
     "maxProperties", "minProperties", "required", "dependentRequired"}
)  # fmt: skip
NOTES: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"}
)
KEYWORDS: Final = _ONE | _LIST | _MAP | _PLAIN | NOTES


class SchemaFault(ValueError):
    """Something in a schema cannot be declared; `path` leads to it."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.path = path


@dataclass(slots=True)
class Part:
    """One schema within a schema. `in_place` are the parts that look at the same value as this one; `children` those
    that look at what is inside it, by keyword and, where there is one, by name or place.
    """

    path: Path
    schema: Schema
    in_place: list[Path] = field(default_factory=list)
    children: list[tuple[str, str | int | None, Path]] = field(default_factory=list)


def parts_of(schema: Schema) -> dict[Path, Part]:
    """Every part by its path; the whole is at (). Raises SchemaFault."""
    check_size(schema)
    found: dict[Path, Part] = {}
    for part in _walk(schema, ()):
        found[part.path] = part
        if len(found) > MAX_PARTS:
            raise SchemaFault(f"the schema has over {MAX_PARTS} parts; describe less of the data", part.path)
    by_pointer = {pointer(path): path for path in found}
    for part in found.values():
        _follow(part, by_pointer)
    return found


def check_size(schema: Any) -> None:
    """That it is JSON, and not too large, in whichever words it is. Raises SchemaFault."""
    try:
        size = len(strict_json.encode(schema).encode())
    except (Refused, TypeError) as exc:
        raise SchemaFault(f"a schema is JSON as events are: {exc}") from exc
    if size > MAX_BYTES:
        raise SchemaFault(f"the schema has {size} bytes; at most {MAX_BYTES} are taken")


def _walk(schema: Any, path: Path) -> Iterator[Part]:
    if len(path) > MAX_NESTED:
        raise SchemaFault("the schema is nested too deep here; name parts in `$defs` and refer to them", path)
    if isinstance(schema, bool):
        yield Part(path, schema)
        return
    if not isinstance(schema, Mapping):
        raise SchemaFault("a schema is a mapping, true or false", path)
    _check_keywords(schema, path)
    part = Part(path, schema)
    inside: list[tuple[Any, Path]] = []
    for keyword, value in schema.items():
        for name, below in _below(keyword, value, path):
            at = (*path, keyword) if name is None else (*path, keyword, name)
            inside.append((below, at))
            if keyword in _IN_PLACE:
                part.in_place.append(at)
            elif keyword != "$defs":
                part.children.append((keyword, name, at))
    yield part
    for below, at in inside:
        yield from _walk(below, at)


def _below(keyword: str, value: Any, path: Path) -> Sequence[tuple[str | int | None, Any]]:
    if keyword in _ONE:
        return [(None, value)]
    if keyword in _LIST:
        if not isinstance(value, list) or not value:
            raise SchemaFault(f"`{keyword}` is a list of schemas, not empty", (*path, keyword))
        return list(enumerate(value))
    if keyword in _MAP:
        if not isinstance(value, Mapping):
            raise SchemaFault(f"`{keyword}` is a mapping from names to schemas", (*path, keyword))
        return list(value.items())
    return []


def _check_keywords(schema: Mapping[str, Any], path: Path) -> None:
    for keyword, value in schema.items():
        at = (*path, keyword)
        if keyword not in KEYWORDS:
            instead = _INSTEAD.get(keyword)
            way_out = "" if instead is None else f"; {instead}"
            raise SchemaFault(f"`{keyword[:80]}` is not taken here{way_out}", at)
        if keyword == "$schema" and (path or value != DRAFT):
            raise SchemaFault(f"`$schema` stands at the top, and is {DRAFT}", at)
        if keyword == "type" and None in (value if isinstance(value, list) else [value]):
            raise SchemaFault('the type "null" is written in quotes', at)
        if keyword == "format" and value not in FORMATS:
            raise SchemaFault(f"this `format` is not known; known are {', '.join(FORMATS)}", at)
        if keyword == "pattern":
            _check_pattern(value, at)
        if keyword == "patternProperties" and isinstance(value, Mapping):
            for pattern in value:
                _check_pattern(pattern, (*at, pattern))


_INSTEAD: Final[Mapping[str, str]] = {
    "definitions": "write `$defs`",
    "dependencies": "write `dependentRequired` or `dependentSchemas`",
    "additionalItems": "write `prefixItems` with `items`",
    "id": "a schema belongs to its event type and needs no name",
    "$id": "a schema belongs to its event type and needs no name",
    "$anchor": "refer by path, such as `#/$defs/address`",
    "$dynamicRef": "write `$ref` with a path, such as `#/$defs/address`",
    "$recursiveRef": "write `$ref` with a path, such as `#`",
    "nullable": 'write `type: [string, "null"]`',
    "contentEncoding": "nothing would be checked by it",
    "contentMediaType": "nothing would be checked by it",
    "contentSchema": "nothing would be checked by it",
}


def _check_pattern(pattern: Any, at: Path) -> None:
    if isinstance(pattern, str) and len(pattern) > MAX_PATTERN:
        raise SchemaFault(f"a pattern of {len(pattern)} characters; at most {MAX_PATTERN} are taken", at)


def _follow(part: Part, by_pointer: Mapping[str, Path]) -> None:
    """Add what the part refers to."""
    if isinstance(part.schema, bool) or "$ref" not in part.schema:
        return
    at, told = (*part.path, "$ref"), part.schema["$ref"]
    if not isinstance(told, str) or (told != "#" and not told.startswith("#/")):
        raise SchemaFault("a `$ref` stays in its schema, such as `#/$defs/address`: nothing is fetched", at)
    target = by_pointer.get(unquote(told[1:]))
    if target is None:
        raise SchemaFault(f"`{told[:80]}` leads to no schema in here", at)
    part.in_place.append(target)


def pointer(path: Path) -> str:
    """The path as a JSON pointer."""
    return "".join("/" + str(word).replace("~", "~0").replace("/", "~1") for word in path)
