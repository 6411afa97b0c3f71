"""The door for published events: one event, durable before the answer; which runs it makes is ingest's to say."""

import hashlib

import msgspec
from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.fields import read_fields
from processors.gateway.keys import check_key, key_in_header
from processors.gateway.parts import Parts
from processors.ports.door import Acceptance
from processors.ports.tokens import WRITE
from schemas.envelope import Envelope, body_hash, checked, encode_envelope, referring
from schemas.errors import Refused
from schemas.ids import new_event_id


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


class Events:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def publish(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        require_json(request)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        fields = read_fields(body, EventFields)
        key, key_source = _key(request, fields)
        now = parts.door.now()
        envelope = checked(
            Envelope(
                id=new_event_id(int(now.timestamp() * 1000)),
                type=fields.type,
                idempotency_key=key,
                partition_key=key if fields.partition_key is None else fields.partition_key,
                occurred_at=fields.occurred_at or now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                data=bytes(fields.data).decode(),
                project_id=token.project_id,
                correlation_id=fields.correlation_id or fields.id,
            )
        )
        stored = parts.body_for_storage(token.project_id, envelope.data)
        answer = await parts.accept(
            Acceptance(
                project_id=token.project_id,
                idempotency_key=key,
                key_source=key_source,
                body_hash=body_hash(envelope.data),
                event_id=envelope.id,
                partition_key=envelope.partition_key,
                run_id=None,
                envelope=encode_envelope(envelope if stored is None else referring(envelope, stored)),
                window=parts.limits.dedup_window,
                body=stored,
            )
        )
        return await parts.told(answer, key_source)


def _key(request: web.Request, fields: EventFields) -> tuple[str, str]:
    """The event's key and where it came from: the header, the body, the event's own id, or the data."""
    in_header = key_in_header(request)
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
