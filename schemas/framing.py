"""The forms in which an event may stand on the topic: our Avro, a JSON envelope, a CloudEvent in either of its modes,
and where there is a schema registry, what is framed for it.

Which one it is, is told by the record: the marker of Avro or of the registry first (no JSON text begins with those
bytes), then the headers of CloudEvents' Kafka binding, else it is a JSON envelope. One that is none of them is a
refusal and costs no neighbour.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from schemas.avro import MAGIC
from schemas.cloudevents import STRUCTURED, CloudEvent, envelope_of, from_binary, from_structured, is_whole, media_type
from schemas.confluent import WriterSchema, schema_number
from schemas.envelope import Envelope, decode_envelope
from schemas.errors import Refused

PROJECT_HEADER: Final = "a44-project"
_CONTENT_TYPE: Final = "content-type"
_PREFIX: Final = "ce_"
_NONE: Final[Mapping[int, WriterSchema | Refused]] = {}
_LAST_MILLI: Final = 253_402_300_799_999  # of the year 9999
_TOMBSTONE: Final = Refused(
    "E_TOMBSTONE",
    "the record has no value; wanted an envelope: nothing that was accepted can be taken back by a tombstone",
)
Headers = tuple[tuple[str, bytes | None], ...]  # a producer may write a header without a value


class Framed(Protocol):
    """A record as far as its form is concerned."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp_ms(self) -> int: ...


Writers = Mapping[int, WriterSchema | Refused]  # by number, with the one that the record names


def decode_record(record: Framed, writers: Writers = _NONE) -> Envelope:
    """Without `writers` no record is taken for one that is framed for a registry.

    Raises Refused: E_TOMBSTONE, E_ENVELOPE_INVALID, E_CLOUDEVENT_INVALID, E_SCHEMA_UNKNOWN.
    """
    value = record.value
    if value is not None and value[:1] == MAGIC[:1]:
        return decode_envelope(value)
    if writers and value is not None and (number := schema_number(value)) is not None:
        writer = writers[number]
        if isinstance(writer, Refused):
            raise writer
        return writer.decode(value)
    told = _meant(record.headers)
    if told is not None:
        return _cloudevent(record, told)
    if value is None:
        raise _TOMBSTONE
    return decode_envelope(value)


def _meant(headers: Headers) -> Headers | None:
    """The headers of a CloudEvent; None where they tell of none."""
    for name, value in headers:
        if name == f"{_PREFIX}specversion":
            return headers
        if name == _CONTENT_TYPE and value is not None and is_whole(value.decode("utf-8", "replace")):
            return headers
    return None


def _cloudevent(record: Framed, headers: Headers) -> Envelope:
    told = _texts(headers)
    event = _read(record.value, told)
    project = event.project or told.get(PROJECT_HEADER)
    if project is None:
        raise _refusal(f"the attribute project is missing, and no header {PROJECT_HEADER} says whose event it is")
    if event.partition_key is None:
        event = msgspec.structs.replace(event, partition_key=_key(record.key))
    return envelope_of(event, project_id=project, received_at=_moment(record.timestamp_ms))


def _read(value: bytes | None, told: Mapping[str, str]) -> CloudEvent:
    kind = told.get(_CONTENT_TYPE, "")
    try:
        if not is_whole(kind):
            attributes = {name[len(_PREFIX) :]: text for name, text in told.items() if name.startswith(_PREFIX)}
            return from_binary({**attributes, "datacontenttype": kind}, value or b"")
        if media_type(kind) != STRUCTURED:
            raise _refusal(f"the content type is {media_type(kind)[:80]!r}; wanted {STRUCTURED}, one event a record")
        if value is None:
            raise _TOMBSTONE
        return from_structured(value)
    except Refused as exc:
        if not exc.code.startswith("E_JSON_") and exc.code not in {"E_DUPLICATE_KEY", "E_BODY_UNSTORABLE"}:
            raise
        # What is said of a record stands in lists of dead letters: a key of somebody's data has no place there.
        fault = "a key stands twice in one object" if exc.code == "E_DUPLICATE_KEY" else exc.message
        raise _refusal(f"the event is not strict JSON: {fault}") from exc


def _texts(headers: Headers) -> dict[str, str]:
    """The headers that mean something; what others write beside them is theirs."""
    found: dict[str, str] = {}
    for name, value in headers:
        if value is None or not (name.startswith(_PREFIX) or name in {_CONTENT_TYPE, PROJECT_HEADER}):
            continue
        if name in found:
            raise _refusal(f"the header {name[:80]!r} stands twice")
        try:
            found[name] = value.decode()
        except UnicodeDecodeError as exc:
            raise _refusal(f"the header {name[:80]!r} is not UTF-8: byte {exc.start} begins no character") from exc
    return found


def _key(key: bytes | None) -> str | None:
    """The record's key, which chose its partition, keeps the event's order as well."""
    if not key:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError as exc:
        raise _refusal(
            f"the record's key is not UTF-8: byte {exc.start} begins no character; "
            "send the attribute partitionkey, which stands in for it"
        ) from exc


def _moment(millis: int) -> str:
    """The record's own time, for an event that tells none: the same at each reading."""
    moment = datetime.fromtimestamp(min(max(millis, 0), _LAST_MILLI) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _refusal(message: str) -> Refused:
    return Refused("E_CLOUDEVENT_INVALID", message)
