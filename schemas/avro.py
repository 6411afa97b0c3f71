"""Avro records with single-object encoding: C3 01, the writer schema's fingerprint, the binary record.

Schemas are the `.avsc` files beside this module, `<record>.v<n>.avsc`. The highest number writes; all
of them read, resolved to the newest, so records of older versions stay readable. A file that shipped
is never edited: a change is a new number.

Records are flat, made of text, whole numbers and lists of them, and written here: a general writer looks at the
schema again for each value, which cost more than deciding about the run that is told of.
"""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter, call
from typing import Any, Final

import msgspec
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import fingerprint, to_parsing_canonical_form

MAGIC: Final = b"\xc3\x01"
_HEADER = 10
LOW_BITS, MORE = 0x7F, 0x80  # of a byte of a number: what it holds, and that another follows
_FILE = re.compile(r"([a-z_]+)\.v([0-9]+)\.avsc")


class UndecodableError(ValueError):
    """The bytes are not a record that this codec reads; the text says why."""


class RecordCodec:
    """Reads and writes one kind of record given as a mapping of its fields."""

    def __init__(self, versions: list[Mapping[str, Any]]) -> None:
        """Take the schemas of one record, oldest first. Raises KeyError where the newest has a type not known here."""
        parsed = [parse_schema(dict(schema)) for schema in versions]
        self._newest = parsed[-1]
        self._header = MAGIC + _fingerprint(versions[-1])
        fields = versions[-1]["fields"]
        self._defaults = [(one["name"], one.get("default")) for one in fields]
        self._values_of = attrgetter(*(one["name"] for one in fields))
        self._writes = [_WRITERS[str(one["type"])] for one in fields]
        self._writers = {_fingerprint(raw): schema for raw, schema in zip(versions, parsed, strict=True)}

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Write one record. Raises ValueError or TypeError where a field does not fit the schema."""
        return self._written([record.get(name, default) for name, default in self._defaults])

    def encode_struct(self, record: msgspec.Struct) -> bytes:
        """The same of a struct that has all the fields, two at least."""
        return self._written(self._values_of(record))

    def _written(self, values: Sequence[Any]) -> bytes:
        return self._header + b"".join(map(call, self._writes, values))

    def decode(self, data: bytes) -> dict[str, Any]:
        """Read one record of any known version. Raises UndecodableError."""
        if data[:2] != MAGIC:
            raise UndecodableError("it does not begin with the Avro marker C3 01")
        writer = self._writers.get(data[2:_HEADER])
        if writer is None:
            raise UndecodableError(f"its Avro schema fingerprint {data[2:_HEADER].hex()} is not known here")
        body = io.BytesIO(data)
        body.seek(_HEADER)
        try:
            record: dict[str, Any] = schemaless_reader(body, writer, None if writer is self._newest else self._newest)
        except Exception as exc:  # fastavro lets through whatever broken bytes run into
            raise UndecodableError(f"its Avro record is broken: {type(exc).__name__}") from exc
        if body.tell() != len(data):
            raise UndecodableError(f"{len(data) - body.tell()} bytes stand behind its Avro record")
        return record


def _number(value: int, bits: int = 64) -> bytes:
    """Zigzag, seven bits a byte, the lowest first."""
    if not -1 << bits - 1 <= value < 1 << bits - 1:
        raise ValueError(f"{value} does not fit in {bits} bits")
    left = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while left > LOW_BITS:
        out.append(left & LOW_BITS | MORE)
        left >>= 7
    out.append(left)
    return bytes(out)


def _text(value: str) -> bytes:
    data = str.encode(value)
    length = len(data)
    return (_SMALL[length] if length < _FIRST_LARGE else _number(length)) + data


def _text_or_null(value: str | None) -> bytes:
    return b"\0" if value is None else b"\2" + _text(value)


def _long(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < _FIRST_LARGE else _number(value)


def _int(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < _FIRST_LARGE else _number(value, 32)


def _list_of(write: Callable[[Any], bytes]) -> Callable[[Sequence[Any]], bytes]:
    """One block with all items, where there are any, and the end."""
    return lambda values: b"".join([_long(len(values)), *map(write, values), b"\0"]) if values else b"\0"


_FIRST_LARGE: Final = 1024
_SMALL: Final = [_number(value) for value in range(_FIRST_LARGE)]  # as lengths and counts mostly are
_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "string": _text,
    str(["null", "string"]): _text_or_null,
    "int": _int,
    "long": _long,
    str({"type": "array", "items": "string"}): _list_of(_text),
    str({"type": "array", "items": "int"}): _list_of(_int),
}


def _fingerprint(schema: Mapping[str, Any]) -> bytes:
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


@cache
def codec(record: str) -> RecordCodec:
    """The codec of a record by the name of its files, such as `envelope`."""
    found: dict[int, Mapping[str, Any]] = {}
    for entry in files("schemas").joinpath("avro").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match is not None and match[1] == record:
            found[int(match[2])] = json.loads(entry.read_text("utf-8"))
    if not found:
        raise KeyError(record)
    return RecordCodec([found[number] for number in sorted(found)])
