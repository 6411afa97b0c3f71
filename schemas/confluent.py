"""Records framed for a schema registry: a zero byte, the number of the writer's schema, the record in that schema.

The writer's schema names the envelope's fields; what else it has is passed over. `data` is JSON text, or a record, a
list or a map that JSON can tell. Schemas are other people's: one that would let a few bytes stand for endless values is
refused.
"""

import io
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from fastavro import parse_schema, schemaless_reader

from schemas import strict_json
from schemas.envelope import Envelope, decode_envelope, from_told
from schemas.errors import Refused

FRAME: Final = b"\0"
_BEHIND_FRAME: Final = 5
_AVRO, _JSON = "AVRO", "JSON"


def schema_number(value: bytes | None) -> int | None:
    """The number of the schema that a record says it was written in; None where it is not framed."""
    if value is None or value[:1] != FRAME or len(value) < _BEHIND_FRAME:
        return None
    return int.from_bytes(value[1:_BEHIND_FRAME], "big")


class WriterSchema:
    """One schema of a registry, by which records are read."""

    def __init__(self, number: int, kind: str, text: str) -> None:
        """Raises Refused E_SCHEMA_UNKNOWN where no record can be read by it."""
        self._number = number
        self._avro: Any = None
        if kind == _JSON:
            return
        if kind != _AVRO:
            _refuse(number, f"is {kind[:20]}; wanted {_AVRO} or {_JSON}")
        try:
            told = json.loads(text)
            named: dict[str, Any] = {}
            self._avro = parse_schema(told, named)
            is_endless = _is_endless(self._avro, named, set())
        except Exception as exc:  # noqa: BLE001  fastavro lets through whatever a broken schema runs into
            _refuse(number, f"cannot be read: {type(exc).__name__}", exc)
        if not isinstance(told, dict) or told.get("type") != "record":
            _refuse(number, "is no record")
        if is_endless:
            _refuse(number, "has values that take no bytes, any number of which would fit into a record")

    def decode(self, value: bytes) -> Envelope:
        """The envelope of a framed record. Raises Refused E_ENVELOPE_INVALID."""
        if self._avro is None:
            return decode_envelope(value[_BEHIND_FRAME:])
        body = io.BytesIO(value)
        body.seek(_BEHIND_FRAME)
        try:
            told: Any = schemaless_reader(body, self._avro, None)
        except Exception as exc:
            raise Refused(
                "E_ENVELOPE_INVALID", f"the record is not of its schema {self._number}: {type(exc).__name__}"
            ) from exc
        if body.tell() != len(value):
            raise Refused("E_ENVELOPE_INVALID", f"{len(value) - body.tell()} bytes stand behind the record")
        return from_told({**told, "data": _json_text(told)})


def _json_text(told: Mapping[str, Any]) -> str | None:
    data = told.get("data")
    if "data" not in told or isinstance(data, str):
        return data
    try:
        return strict_json.encode(data)
    except Refused as exc:  # what it says may hold a key of somebody's data
        fault = "the field data holds what JSON cannot tell, such as bytes, a date or a decimal"
        raise Refused("E_ENVELOPE_INVALID", fault, details={"field": "data"}) from exc


def _is_endless(schema: Any, named: Mapping[str, Any], seen: set[str], *, in_list: bool = False) -> bool:
    """Whether a list may hold values that take no bytes, or a map or a list records with such a field: a few bytes of a
    record would be any amount of memory. `seen` are names that were followed already.
    """
    if isinstance(schema, str):
        if not in_list or schema not in named or schema in seen:
            return False
        seen.add(schema)
        schema = named[schema]
    parts, in_list, may_be_nothing = _parts(schema, in_list=in_list)
    return any(
        (not may_be_nothing and _takes_nothing(one, named)) or _is_endless(one, named, seen, in_list=in_list)
        for one in parts
    )


def _parts(schema: Any, *, in_list: bool) -> tuple[list[Any], bool, bool]:
    """What it consists of, whether that stands in a list, and whether it may take no bytes."""
    if isinstance(schema, list):
        return schema, in_list, True
    kind = schema["type"]
    if kind in ("record", "error"):
        return [field["type"] for field in schema["fields"]], in_list, not in_list
    if kind == "array":
        return [schema["items"]], True, False
    if kind == "map":
        return [schema["values"]], True, True
    return [] if isinstance(kind, str) else [kind], in_list, True


def _takes_nothing(schema: Any, named: Mapping[str, Any], within: frozenset[str] = frozenset()) -> bool:
    """Whether a value takes no bytes; of a record within itself it is the outer one that tells."""
    if isinstance(schema, str):
        known = schema in named and schema not in within
        return schema == "null" or (known and _takes_nothing(named[schema], named, within | {schema}))
    if isinstance(schema, list):
        return False  # the number of the branch stands before it
    if schema["type"] in ("record", "error"):
        return all(_takes_nothing(field["type"], named, within) for field in schema["fields"])
    return bool(schema.get("size") == 0) if schema["type"] == "fixed" else _takes_nothing(schema["type"], named, within)


def _refuse(number: int, fault: str, cause: Exception | None = None) -> NoReturn:
    raise Refused("E_SCHEMA_UNKNOWN", f"the schema {number} of the registry {fault}") from cause
