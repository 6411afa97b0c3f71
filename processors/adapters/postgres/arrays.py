"""Lists as Postgres array parameters, a whole list at a time.

The driver's own way goes through a list element by element with two regular expressions each, which was the
largest share of a batch's cost. Here texts and numbers become one array literal by a few calls over the whole list, and
bytes one array in the binary format, where nothing is escaped and nothing has to be read back digit by digit.
"""

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from schemas.errors import Broken

_BETWEEN: Final = "\0,"  # no text that Postgres can keep holds a NUL
_NOTHING: Final = "\0N"
_BYTEA, _BYTEA_ARRAY = 17, 1001
_HEAD, _LENGTH = struct.Struct(">iiIii"), struct.Struct(">i")


class BytesArray:
    """A `bytea[]` as it goes over the wire."""

    __slots__ = ("wire",)

    def __init__(self, values: Sequence[bytes | None]) -> None:
        parts = [_HEAD.pack(1, 1, _BYTEA, len(values), 1)]
        for value in values:
            parts += (_LENGTH.pack(-1),) if value is None else (_LENGTH.pack(len(value)), value)
        self.wire = b"".join(parts)


class _BytesArrayDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: BytesArray) -> bytes:
        return obj.wire


psycopg.adapters.register_dumper(BytesArray, _BytesArrayDumper)


def with_literals(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with their lists as arrays; every statement casts its arrays."""
    return {name: literal(value) if type(value) is list else value for name, value in params.items()}


def literal(values: list[Any]) -> str | BytesArray | list[Any]:
    """The array of a list of one type, or the list itself where the driver knows better."""
    if values and isinstance(values[0], str | int | None) and values.count(values[0]) == len(values):
        return "{" + ",".join([_one(values[0])] * len(values)) + "}"
    nulls = values.count(None)
    first = next((value for value in values if value is not None), None)
    if isinstance(first, str):
        return _texts(values, nulls)
    if isinstance(first, int | float):
        return "{" + repr(values)[1:-1].replace("None", "NULL") + "}"
    if isinstance(first, datetime):
        return _times(values)
    if isinstance(first, bytes):
        return BytesArray(values)
    return values or "{}"


def _one(value: str | int | None) -> str:
    """What all of a column have in common, as most columns of a batch do, is written once."""
    if value is None:
        return "NULL"
    return _texts([value], 0)[1:-1] if isinstance(value, str) else repr(value)


def _texts(values: Sequence[str | None], nulls: int) -> str:
    texts = [_NOTHING if value is None else value for value in values] if nulls else values
    whole = _BETWEEN.join(texts)  # type: ignore[arg-type]
    if whole.count("\0") != len(values) - 1 + nulls:
        raise Broken("E_INTERNAL", "a batch holds text with a NUL")
    escaped = whole.replace("\\", "\\\\").replace('"', '\\"')
    quoted = '{"' + escaped.replace(_BETWEEN, '","') + '"}'
    return quoted.replace(f'"{_NOTHING}"', "NULL") if nulls else quoted


def _times(values: Sequence[datetime | None]) -> str:
    """Records of one flush share their time; it is written out once."""
    written = {value: "NULL" if value is None else f'"{value.isoformat()}"' for value in set(values)}
    return "{" + ",".join([written[value] for value in values]) + "}"
