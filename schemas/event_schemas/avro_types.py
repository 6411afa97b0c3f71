"""Avro schemas in the words of JSON Schema: the data of events is JSON, so this says how JSON tells what Avro means.

Nothing is left to a guess. A union is told by the kind of the JSON value; of several records, all one kind, the value
names its branch, and any other two branches that are the same kind are refused. A default fits the first branch of its
union, as readers of Avro expect. Whole numbers and decimals keep all their digits: a decimal is text, and so are dates
and moments, never a bare number.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from fastavro import parse_schema
from jsonschema_rs import Draft202012Validator

from schemas.event_schemas.dialect import MAX_NESTED, Path, SchemaFault, check_size

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT, _LONG = 2**31, 2**63
_MOST_DIGITS: Final = 100
_LARGEST_FIXED: Final = 65_536
_OCTETS: Final = "^[\\u0000-\\u00ff]*$"
_CLOCK: Final = "^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?$"
_PRIMITIVES: Final[Mapping[str, Mapping[str, Any]]] = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -_INT, "maximum": _INT - 1},
    "long": {"type": "integer", "minimum": -_LONG, "maximum": _LONG - 1},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "pattern": _OCTETS},
}
_LOGICAL: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("int", "date"): {"type": "string", "format": "date"},
    ("int", "time-millis"): {"type": "string", "pattern": _CLOCK},
    ("long", "time-micros"): {"type": "string", "pattern": _CLOCK},
    ("long", "timestamp-millis"): {"type": "string", "format": "date-time"},
    ("long", "timestamp-micros"): {"type": "string", "format": "date-time"},
    ("string", "uuid"): {"type": "string", "format": "uuid"},
}
_NAMED: Final = frozenset({"name", "namespace", "doc", "type"})
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "record": _NAMED | {"fields"},
    "enum": _NAMED | {"symbols", "default"},
    "fixed": _NAMED | {"size", "logicalType", "precision", "scale"},
    "array": frozenset({"type", "items", "doc"}),
    "map": frozenset({"type", "values", "doc"}),
}
_PLAIN_KEYS: Final = frozenset({"type", "logicalType", "precision", "scale", "doc"})
_FIELD_KEYS: Final = frozenset({"name", "type", "default", "doc"})
_KINDS: Final[Mapping[str, str]] = {
    "null": "null", "boolean": "boolean", "int": "number", "long": "number", "float": "number", "double": "number",
    "string": "string", "bytes": "string", "enum": "string", "fixed": "string", "array": "array", "map": "object",
    "record": "object",
}  # fmt: skip


def words_of(schema: Any) -> dict[str, Any]:
    """Raises SchemaFault."""
    check_size(schema)
    reading = _Reading()
    found = reading.type(schema, (), "")
    words = {**found, "$defs": reading.defs} if reading.defs else dict(found)
    reading.check_defaults()
    try:
        parse_schema(schema)
    except Exception as exc:  # fastavro lets through whatever a broken schema runs into
        raise SchemaFault(f"this is no Avro schema: {type(exc).__name__}") from exc
    return words


class _Reading:
    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}  # of named types
        self._defaults: list[tuple[Mapping[str, Any], Any, Path]] = []

    def type(self, told: Any, path: Path, space: str) -> Mapping[str, Any]:
        if len(path) > MAX_NESTED:
            raise SchemaFault("the schema is nested too deep here; name records and refer to them", path)
        if isinstance(told, str):
            return self._by_name(told, path, space)
        if isinstance(told, list):
            return self._union(told, path, space)
        if not isinstance(told, dict) or not isinstance(told.get("type"), str):
            hint = '; the type "null" is written in quotes' if told is None else ""
            raise SchemaFault(f"an Avro type is a name, a mapping with `type`, or a list of types{hint}", path)
        kind = told["type"]
        if kind in _KEYS:
            _only(told, _KEYS[kind], path)
            return self._complex(kind, told, path, space)
        _only(told, _PLAIN_KEYS, path)
        if "logicalType" in told:
            return _logical(kind, told, path)
        return self._by_name(kind, (*path, "type"), space)

    def check_defaults(self) -> None:
        """Once every name is known."""
        for words, default, path in self._defaults:
            if not Draft202012Validator({**words, "$defs": self.defs}, offline=True).is_valid(default):
                raise SchemaFault("the default does not fit the type; of a union, it has to fit the first branch", path)

    def _by_name(self, name: str, path: Path, space: str) -> Mapping[str, Any]:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not space else f"{space}.{name}"
        if full not in self._kinds:
            raise SchemaFault(f"`{name[:80]}` is no type that is known here: name a type after it was declared", path)
        return {"$ref": f"#/$defs/{full}"}

    def _complex(self, kind: str, told: Mapping[str, Any], path: Path, space: str) -> Mapping[str, Any]:
        if kind == "array":
            return {"type": "array", "items": self.type(told.get("items"), (*path, "items"), space)}
        if kind == "map":
            return {"type": "object", "additionalProperties": self.type(told.get("values"), (*path, "values"), space)}
        name = _full_name(told, path, space)
        if name in self._kinds:
            raise SchemaFault(f"`{name[:80]}` is declared already; refer to it by its name", (*path, "name"))
        self._kinds[name] = kind
        if kind == "record":
            self.defs[name] = self._record(told, path, name.rpartition(".")[0])
        else:
            self.defs[name] = _enum(told, path) if kind == "enum" else _fixed(told, path)
        return {"$ref": f"#/$defs/{name}"}

    def _record(self, told: Mapping[str, Any], path: Path, space: str) -> Mapping[str, Any]:
        fields = told.get("fields")
        if not isinstance(fields, list):
            raise SchemaFault("a record has a list of `fields`", path)
        properties: dict[str, Any] = {}
        required: list[str] = []
        for place, field in enumerate(fields):
            at = (*path, "fields", place)
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in field:
                raise SchemaFault("a field is a mapping with `name` and `type`; a name has letters, digits and `_`", at)
            if name in properties:
                raise SchemaFault(f"the field `{name[:80]}` stands here a second time", at)
            _only(field, _FIELD_KEYS, at)
            properties[name] = words = self.type(field["type"], (*at, "type"), space)
            if "default" in field:
                self._defaults.append((_first(words, field["type"]), field["default"], (*at, "default")))
            else:
                required.append(name)
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def _union(self, branches: list[Any], path: Path, space: str) -> Mapping[str, Any]:
        if not branches or any(isinstance(branch, list) for branch in branches):
            raise SchemaFault("a union is a list of types, not empty and without a union in it", path)
        words = [self.type(branch, (*path, place), space) for place, branch in enumerate(branches)]
        kinds = [self._kind_of(branch, one) for branch, one in zip(branches, words, strict=True)]
        told: list[Mapping[str, Any]] = []
        for place, one in enumerate(words):
            alike = [other for other in range(len(words)) if _KINDS[kinds[other]] == _KINDS[kinds[place]]]
            if len(alike) > 1 and any(kinds[other] != "record" for other in alike):
                raise SchemaFault(
                    f"in JSON the branches `{kinds[alike[0]]}` and `{kinds[alike[1]]}` cannot be told apart, and "
                    "nothing is guessed: keep one of them, or put them into records of their own",
                    (*path, alike[1]),
                )
            told.append(_named_branch(one) if len(alike) > 1 else one)
        if all(one.keys() == {"type"} for one in told):
            return {"type": [one["type"] for one in told]}
        return {"anyOf": told}

    def _kind_of(self, branch: Any, words: Mapping[str, Any]) -> str:
        if "$ref" in words:
            return self._kinds[words["$ref"].removeprefix("#/$defs/")]
        kind = branch if isinstance(branch, str) else branch["type"]
        is_text = words.get("type") == "string"  # dates and moments are
        return "string" if is_text and _KINDS[kind] == "number" else str(kind)


def _only(told: Mapping[str, Any], keys: frozenset[str], path: Path) -> None:
    for key in told:
        if key not in keys:
            raise SchemaFault(f"`{key[:80]}` is not taken here; known are {', '.join(sorted(keys))}", (*path, key))


def _full_name(told: Mapping[str, Any], path: Path, space: str) -> str:
    name, own = told.get("name"), told.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str):
        raise SchemaFault("records, enums and fixed types have a `name`", path)
    full = name if "." in name or not own else f"{own}.{name}"
    if not all(_NAME.fullmatch(word) for word in full.split(".")):
        raise SchemaFault(f"`{full[:80]}` is no name: letters, digits and `_`, with dots between namespaces", path)
    return full


def _first(words: Mapping[str, Any], told: Any) -> Mapping[str, Any]:
    """What a default has to fit: of a union its first branch. Avro writes it in the plain type, a date as a number."""
    first = told[0] if isinstance(told, list) else told
    if isinstance(first, dict) and first["type"] in _PRIMITIVES:
        return _PRIMITIVES[first["type"]]
    if not isinstance(told, list):
        return words
    return words["anyOf"][0] if "anyOf" in words else {"type": words["type"][0]}


def _named_branch(words: Mapping[str, Any]) -> Mapping[str, Any]:
    name = words["$ref"].removeprefix("#/$defs/")
    return {"type": "object", "properties": {name: words}, "required": [name], "additionalProperties": False}


def _enum(told: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    symbols = told.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(one, str) for one in symbols):
        raise SchemaFault("an enum has a list of `symbols`", path)
    return {"type": "string", "enum": symbols}


def _fixed(told: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    size = told.get("size")
    if type(size) is not int or not 1 <= size <= _LARGEST_FIXED:
        raise SchemaFault(f"a fixed type has a `size` from 1 to {_LARGEST_FIXED}", path)
    if "logicalType" in told:
        return _logical("fixed", told, path)
    return {"type": "string", "pattern": _OCTETS, "minLength": size, "maxLength": size}


def _logical(kind: str, told: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    name = told["logicalType"]
    if name == "decimal" and kind in ("bytes", "fixed"):
        return {"type": "string", "pattern": _decimal(told, path)}
    found = _LOGICAL.get((kind, name)) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(f"{logical} of {of}" for of, logical in _LOGICAL)
        fault = f"this logical type of `{kind}` is not known; known are {known}, decimal of bytes or fixed"
        raise SchemaFault(fault, (*path, "logicalType"))
    return found


def _decimal(told: Mapping[str, Any], path: Path) -> str:
    """A pattern for the digits that there may be, and no others: no exponent, and nothing is rounded."""
    digits, behind = told.get("precision"), told.get("scale", 0)
    if type(digits) is not int or type(behind) is not int or not 0 <= behind <= digits <= _MOST_DIGITS or digits < 1:
        fault = f"a decimal has a `precision` from 1 to {_MOST_DIGITS} and a `scale` from 0 to that"
        raise SchemaFault(fault, path)
    before = "0" if digits == behind else f"[0-9]{{1,{digits - behind}}}"
    return f"^-?{before}$" if behind == 0 else f"^-?{before}(\\.[0-9]{{1,{behind}}})?$"
