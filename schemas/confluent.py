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
            self._avro, is_endless = parse_schema(told), _is_endless(told)
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


def _is_endless(schema: Any) -> bool:
    """Whether something in it takes no bytes, so that a list of it may be of any length."""
    if isinstance(schema, list):
        return any(map(_is_endless, schema))
    if not isinstance(schema, Mapping):
        return False
    kind = schema.get("type")
    if kind == "record":
        types = [field["type"] for field in schema["fields"]]
        return all(one == "null" for one in types) or _is_endless(types)
    if kind == "array":
        return schema["items"] in ("null", {"type": "null"}) or _is_endless(schema["items"])
    return schema.get("size") == 0 or _is_endless(schema.get("values")) or _is_endless(kind)


def _refuse(number: int, fault: str, cause: Exception | None = None) -> NoReturn:
    raise Refused("E_SCHEMA_UNKNOWN", f"the schema {number} of the registry {fault}") from cause
