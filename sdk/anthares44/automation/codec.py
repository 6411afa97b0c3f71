"""Values as recorded: strict JSON text, redacted, with tags for a few types that JSON lacks.

What comes back from `decode(encode(v))` equals v, or encode refuses (E_RESULT_NOT_JSON): nothing is
changed in silence, except that secrets are replaced. A tag is an object with the one key `$datetime`,
`$date`, `$uuid`, `$decimal`, `$bytes` or `$dataclass`; data that looks like one (an object whose only key
starts with `$`) gets one more `$`, so that no data can be taken for a tag.
"""

import base64
import dataclasses
import json
import math
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any
from uuid import UUID

from anthares44.automation.errors import RESULT_NOT_JSON, RESULT_TOO_LARGE, ResultError, bounded
from anthares44.automation.redaction import REDACTED, Redaction

RESULT_BYTES = 16 * 1024 * 1024
LARGEST_INT_BITS = 3320  # about 1,000 decimal digits; readers elsewhere give up not far above
DEEPEST = 200

_REMEMBERED = 4096
_SMALL_INT = 2**63
_HIDDEN = encode_basestring(REDACTED)


class _NotJsonError(Exception):
    """Carries the way to the offending part, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


class Codec:
    """Encodes for one project: its redaction and the largest result in bytes."""

    __slots__ = ("_fields", "_hides", "_limit")

    def __init__(self, redaction: Redaction | None = None, limit: int = RESULT_BYTES) -> None:
        self._hides = (redaction or Redaction()).hides
        self._limit = limit
        self._fields: dict[str, tuple[str, bool]] = {}

    def encode(self, value: object, name: str = "result") -> str:
        """The recorded text of a value. Raises ResultError, which names the part at fault."""
        try:
            text = self._written(value, 0, hide=False)
        except _NotJsonError as error:
            where = name + "".join(reversed(error.path))
            raise ResultError(bounded(f"{where}: {error.reason}"), code=RESULT_NOT_JSON) from None
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._limit:
            message = f"{name}: {size} bytes as JSON; at most {self._limit} are kept. Store it and return where."
            raise ResultError(message, code=RESULT_TOO_LARGE)
        return text

    def _written(self, value: Any, depth: int, *, hide: bool) -> str:
        kind = type(value)
        if kind is str:
            return _HIDDEN if hide else _text(value)
        if kind is dict:
            return self._object(value, depth + 1)
        if kind is list:
            return self._array(value, depth + 1, hide=hide)
        scalar = _SCALARS.get(kind)
        return scalar(value) if scalar else self._other(value, depth, hide=hide)

    def _object(self, value: dict[Any, Any], depth: int) -> str:
        _check_depth(depth)
        members: list[str] = []
        for key, part in value.items():
            try:
                known = self._fields.get(key) if type(key) is str else None
                name, hide = known or self._field(key)
                members.append(name + self._written(part, depth, hide=hide))
            except _NotJsonError as error:
                error.path.append(f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]")
                raise
        if len(members) == 1 and members[0].startswith('"$'):
            return f'{{"${members[0][1:]}}}'
        return f"{{{','.join(members)}}}"

    def _field(self, key: Any) -> tuple[str, bool]:
        """Its name as it is written, and whether what it holds is hidden."""
        if not isinstance(key, str):
            raise _NotJsonError(f"the key {key!r} is {_kind(key)}; keys must be text")
        field = (f"{_text(key)}:", self._hides(key))
        if len(self._fields) < _REMEMBERED:  # names that are data (ids as keys) must not pile up
            self._fields[_exact_text(key)] = field
        return field

    def _array(self, value: list[Any], depth: int, *, hide: bool) -> str:
        _check_depth(depth)
        members: list[str] = []
        for part in value:
            try:
                members.append(self._written(part, depth, hide=hide))
            except _NotJsonError as error:
                error.path.append(f"[{len(members)}]")
                raise
        return f"[{','.join(members)}]"

    def _other(self, value: Any, depth: int, *, hide: bool) -> str:
        """Tagged types, and subclasses of JSON's own types, which stay equal to what comes back."""
        tag = _TAGS.get(type(value))
        if tag is not None:
            if hide and isinstance(value, bytes):
                return _HIDDEN
            name, written = tag
            return f'{{"{name}":"{written(value)}"}}'
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            kind = encode_basestring(_class_name(type(value)))
            return f'{{"$dataclass":{{"type":{kind},"fields":{self._object(fields, depth + 1)}}}}}'
        for plain, exact in _EXACT:
            if isinstance(value, plain):
                return self._written(exact(value), depth, hide=hide)
        raise _NotJsonError(f"{_kind(value)} cannot be stored as JSON without change; {_advice(value)}")


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise _NotJsonError(f"nested deeper than {DEEPEST} levels")


def _text(value: str) -> str:
    if "\x00" in value:
        raise _NotJsonError("text with a NUL character cannot be stored")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _NotJsonError(f"text with a lone surrogate at {error.start} is not valid Unicode") from None
    return encode_basestring(value)


def _integer(value: int) -> str:
    if not -_SMALL_INT <= value < _SMALL_INT and value.bit_length() > LARGEST_INT_BITS:
        raise _NotJsonError("a number of more than 1,000 digits; return it as text")
    return repr(value)


def _real(value: float) -> str:
    if not math.isfinite(value):
        raise _NotJsonError(f"{value} is no JSON number; return None or text")
    return repr(value)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise _NotJsonError(f"Decimal {value} is no number; return None or text")
    return str(value)


_SCALARS: dict[type, Callable[[Any], str]] = {
    type(None): {None: "null"}.__getitem__,
    bool: {True: "true", False: "false"}.__getitem__,
    int: _integer,
    float: _real,
}


def _exact_text(value: str) -> str:
    return str.__str__(value)


# What these write needs no escapes.
_TAGS: dict[type, tuple[str, Callable[[Any], str]]] = {
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    UUID: ("$uuid", str),
    Decimal: ("$decimal", _decimal),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
}
_EXACT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, _exact_text),
    (int, int.__index__),
    (float, float.__float__),
    (dict, lambda value: dict(value.items())),
    (list, list),
)


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(value: object) -> str:
    if isinstance(value, tuple | set | frozenset):
        return "return a list"
    return "return text, numbers, lists and objects, or a dataclass of them"


def _class_name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _find_class(name) is not kind:
        raise _NotJsonError(f"the dataclass {kind.__qualname__} must stand at the top of its module")
    return name


def _find_class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _dataclass(written: dict[str, Any]) -> Any:
    """Set the fields as recorded, running no code of the class. Only modules already imported are looked at."""
    kind = _find_class(written["type"])
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise ValueError(f"the recorded dataclass {written['type']} is not in this bundle")
    recorded = written["fields"]
    if set(recorded) != {field.name for field in dataclasses.fields(kind)}:
        raise ValueError(f"the recorded dataclass {written['type']} has other fields than the one in this bundle")
    value = object.__new__(kind)
    for name, part in recorded.items():
        object.__setattr__(value, name, part)
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$uuid": UUID,
    "$decimal": Decimal,
    "$bytes": lambda written: base64.b64decode(written, validate=True),
    "$dataclass": _dataclass,
}


def _untag(value: dict[str, Any]) -> Any:
    if len(value) != 1:
        return value
    (only,) = value
    if not only.startswith("$"):
        return value
    if only.startswith("$$"):
        return {only[1:]: value[only]}
    reader = _READERS.get(only)
    if reader is None:
        raise ValueError(f"unknown tag {only} in a recorded value")
    try:
        return reader(value[only])
    except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a recorded {only} is broken: {error!r}") from error


_whole = json.JSONDecoder().decode
_first = json.JSONDecoder().raw_decode
_decode_tagged = json.JSONDecoder(object_hook=_untag).decode


def decode(text: str) -> Any:
    """The value of a recorded text. Raises ValueError when this bundle cannot read it."""
    return _decode_tagged(text) if '"$' in text else decode_input(text)


def decode_input(text: str) -> Any:
    """The input of a run: JSON from outside, in which nothing is a tag."""
    try:
        value, end = _first(text)
    except ValueError:  # there is space before it, or no JSON
        return _whole(text)
    return value if end == len(text) else _whole(text)
