"""The forms in which events come over HTTP, told by the content type: which bytes are one event, and how it is read.

Own JSON (one object, an array, or NDJSON with one event a line) and CloudEvents (structured, batch, and binary, whose
attributes are headers `ce-...`). Every event is read by itself, so that one that is none costs the others nothing.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
from aiohttp import web

from processors.gateway.bodies import JSON, refuse_encoded, require_media
from processors.gateway.fields import read_fields
from processors.gateway.keys import HEADER, check_key
from schemas import strict_json
from schemas.cloudevents import (
    BATCH,
    STRUCTURED,
    CloudEvent,
    envelope_of,
    from_binary,
    from_structured,
    is_whole,
    split_batch,
)
from schemas.envelope import Envelope, checked
from schemas.errors import Refused
from schemas.ids import new_event_id

NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_PREFIX = "ce-"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class Form(StrEnum):
    OWN = "own"
    LINES = "lines"
    STRUCTURED = "structured"
    BATCH = "batch"
    BINARY = "binary"


_FORMS: Mapping[str, Form] = {
    JSON: Form.OWN,
    STRUCTURED: Form.STRUCTURED,
    BATCH: Form.BATCH,
    **dict.fromkeys(NDJSON, Form.LINES),
}


class EventFields(msgspec.Struct, forbid_unknown_fields=True):
    """What a publisher may say of its event; the rest of the envelope is the platform's.

    `id` is the publisher's own name for the event. It stands in for a key that was not sent; the envelope's
    id is always drawn here, because one that callers choose could not tell a repeat from the first.
    """

    type: str
    data: msgspec.Raw
    idempotency_key: str | None = None
    partition_key: str | None = None
    occurred_at: str | None = None
    id: str | None = None
    correlation_id: str | None = None


class Arrived(NamedTuple):
    """One event, and where its key came from."""

    envelope: Envelope
    key_source: str


Read = Callable[[bytes], Arrived]


class Posted(NamedTuple):
    """What a request holds: the bytes of each event, how one is read, and whether they are answered as a batch."""

    items: Sequence[bytes]
    read: Read
    is_batch: bool


def form_of(request: web.BaseRequest) -> Form:
    """In binary mode the content type is the data's own; a whole event may have its attributes in headers as well.
    Raises Refused E_UNSUPPORTED_MEDIA_TYPE.
    """
    if f"{_PREFIX}specversion" in request.headers and not is_whole(request.headers.get("Content-Type", "")):
        refuse_encoded(request)
        return Form.BINARY
    return _FORMS[require_media(request, tuple(_FORMS))]


def opened(request: web.BaseRequest, form: Form, body: bytes, reader: "Reader", most: int) -> Posted:
    """What a request holds. Raises Refused for what is no batch, and E_BATCH_TOO_LARGE for over `most` events."""
    if form is Form.BINARY:
        attributes = _attributes(request)
        return Posted([body], lambda data: reader.binary(attributes, data), is_batch=False)
    if form is Form.STRUCTURED:
        return Posted([body], reader.structured, is_batch=False)
    if form is Form.BATCH:
        return reader.batch(split_batch(body, most), reader.structured, most)
    if form is Form.LINES:
        return reader.batch([line for line in body.split(b"\n") if line.strip()], reader.own, most)
    items = strict_json.split_array(body, most) if body.lstrip()[:1] == b"[" else None
    return Posted([body], reader.own, is_batch=False) if items is None else reader.batch(items, reader.own, most)


class Reader:
    """Reads events of one project; `key` is the one of the request's header."""

    def __init__(self, project_id: str, now: datetime, key: str | None = None) -> None:
        self._project_id = project_id
        self._millis = int(now.timestamp() * 1000)
        self._moment = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._key = key

    def batch(self, items: Sequence[bytes], read: Read, most: int) -> Posted:
        """Raises Refused E_IDEMPOTENCY_KEY_INVALID, E_BATCH_TOO_LARGE."""
        if self._key is not None:
            raise Refused(
                "E_IDEMPOTENCY_KEY_INVALID", f"the header {HEADER} cannot stand for many events; each has its own key"
            )
        if len(items) > most:
            raise Refused("E_BATCH_TOO_LARGE", f"the batch holds over {most} events; send it in several requests")
        return Posted(items, read, is_batch=True)

    def own(self, body: bytes) -> Arrived:
        """Raises Refused: what strict JSON refuses, E_INVALID_PARAMETER, E_ENVELOPE_INVALID, and keys not usable."""
        fields = read_fields(body, EventFields)
        key, key_source = _key(self._key, fields)
        envelope = checked(
            Envelope(
                id=new_event_id(self._millis),
                type=fields.type,
                idempotency_key=key,
                partition_key=key if fields.partition_key is None else fields.partition_key,
                occurred_at=fields.occurred_at or self._moment,
                data=bytes(fields.data).decode(),
                project_id=self._project_id,
                correlation_id=fields.correlation_id or fields.id,
            )
        )
        return Arrived(envelope, key_source)

    def structured(self, body: bytes) -> Arrived:
        """Raises Refused: what strict JSON refuses, and E_CLOUDEVENT_INVALID."""
        return self._arrived(from_structured(body))

    def binary(self, attributes: Mapping[str, str], data: bytes) -> Arrived:
        """Raises Refused: what strict JSON refuses of the data, and E_CLOUDEVENT_INVALID."""
        return self._arrived(from_binary(attributes, data))

    def _arrived(self, event: CloudEvent) -> Arrived:
        if event.project not in (None, self._project_id):
            raise Refused(
                "E_CLOUDEVENT_INVALID",
                f"the attribute project is {str(event.project)[:80]!r}, and the token is of {self._project_id}",
                details={"field": "project"},
            )
        envelope = envelope_of(
            event, project_id=self._project_id, received_at=self._moment, event_id=new_event_id(self._millis)
        )
        if self._key is None:
            return Arrived(envelope, "cloudevent")
        lane = self._key if envelope.partition_key == envelope.idempotency_key else envelope.partition_key
        return Arrived(msgspec.structs.replace(envelope, idempotency_key=self._key, partition_key=lane), "header")


def _attributes(request: web.BaseRequest) -> dict[str, str]:
    """The attributes of a binary event; values are percent-encoded, as the HTTP binding says."""
    found: dict[str, str] = {}
    for header, value in request.headers.items():
        name = header.lower()
        if name.startswith(_PREFIX):
            _add(found, name.removeprefix(_PREFIX), value)
    content_type = request.headers.get("Content-Type")
    return found if content_type is None else {**found, "datacontenttype": content_type}


def _add(found: dict[str, str], name: str, value: str) -> None:
    if name in found:
        raise _unusable(name, "stands in two headers")
    try:
        value.encode()
        found[name] = unquote(_without_quotes(value), errors="strict")
    except UnicodeError as exc:
        raise _unusable(name, "is no UTF-8 text") from exc


def _without_quotes(value: str) -> str:
    """A value as a quoted string means the same: some proxies and libraries write them so."""
    quoted = _QUOTED.fullmatch(value)
    return value if quoted is None else _ESCAPED.sub(r"\1", quoted[1])


def _unusable(name: str, why: str) -> Refused:
    return Refused("E_CLOUDEVENT_INVALID", f"the attribute {name[:40]} {why}", details={"field": name[:40]})


def _key(in_header: str | None, fields: EventFields) -> tuple[str, str]:
    """The event's key and where it came from: the header, the body, the event's own id, or the data."""
    in_body = None if fields.idempotency_key is None else check_key(fields.idempotency_key)
    if in_header is not None and in_body is not None and in_header != in_body:
        raise Refused(
            "E_IDEMPOTENCY_KEY_INVALID", "header and body name different idempotency keys; send one, or the same"
        )
    if in_header is not None:
        return in_header, "header"
    if in_body is not None:
        return in_body, "body"
    if fields.id is not None:
        return check_key(fields.id), "id"
    return f"body:{fields.type[:120]}:{hashlib.sha256(fields.data).hexdigest()}", "body"
