"""The webhook door: `POST /v1/{project}/{trigger}`, signed, answered once it is durable.

Checked in this order, the cheap and the telling first: method (405, by the router), content type (415),
size (413), signature (401, alike for an unknown trigger), timestamp (408), key (400), JSON (422), filter.
"""

import hashlib
from datetime import datetime
from functools import partial

from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.keys import HEADER, key_in_header
from processors.gateway.parts import Parts, PassedOverError, json_response
from processors.gateway.signatures import SIGNATURE, TIMESTAMP, header_bytes, seconds_off
from processors.ports.catalog import CatalogSnapshot, Trigger
from processors.ports.door import Acceptance
from processors.runtime.matching import WEBHOOK, EventScope, accepts, keyed, run_of, webhook_event_type
from schemas import strict_json
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.errors import Refused
from schemas.ids import new_event_id


class Hooks:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def receive(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._receive(request)
        except Refused as refused:
            self._parts.measures.count("webhook_rejected_total", 1, refused.code)
            raise

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        require_json(request)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        try:
            answer = await parts.accept_by_catalog(partial(self._acceptance, request, body))
        except PassedOverError:
            parts.measures.count("events_filtered_total")
            return json_response({"status": "filtered"}, 202)
        return await parts.told(answer, "header" if HEADER in request.headers else "body")

    def _acceptance(self, request: web.Request, body: bytes, snapshot: CatalogSnapshot) -> Acceptance:
        """Raises Refused, and PassedOverError where the trigger's filter says so."""
        parts = self._parts
        now = parts.door.now()
        trigger = self._verified(request, snapshot, body, now)
        key = key_in_header(request)
        if key is None and trigger.spec.require_idempotency_key:
            raise Refused("E_IDEMPOTENCY_KEY_REQUIRED", f"{trigger.trigger_id} takes no request without a key")
        scope, body_hash, key_source = _read(trigger, body, key, now)
        if not accepts(trigger, scope):
            raise PassedOverError
        envelope, promised = scope.envelope, run_of(snapshot, trigger, scope)
        stored = parts.body_for_storage(trigger.project_id, envelope.data)
        return Acceptance(
            project_id=trigger.project_id,
            idempotency_key=envelope.idempotency_key,
            key_source=key_source,
            body_hash=body_hash,
            event_id=envelope.id,
            partition_key=promised.lane,  # between partitions the order of acceptance would be lost
            run_id=promised.run_id,
            envelope=encode_envelope(envelope if stored is None else referring(envelope, stored)),
            window=parts.limits.dedup_window,
            catalog=snapshot.version,
            body=stored,
        )

    def _verified(self, request: web.Request, snapshot: CatalogSnapshot, body: bytes, now: datetime) -> Trigger:
        """The trigger that signed. Raises Refused E_SIGNATURE, E_TIMESTAMP_SKEW."""
        project_id, trigger_id = request.match_info["project"], request.match_info["trigger"]
        trigger = snapshot.triggers.get((project_id, trigger_id))
        live = [one.number for one in trigger.secrets if one.lives(now)] if trigger is not None else []
        timestamp, signature = (header_bytes(_only(request, name)) for name in (TIMESTAMP, SIGNATURE))
        fitting = self._parts.secrets.fitting(project_id, trigger_id, live, timestamp, body, signature)
        if fitting is None or trigger is None or trigger.type != WEBHOOK:
            raise Refused(
                "E_SIGNATURE",
                f"the signature does not fit: {SIGNATURE} is the lower-case hex HMAC-SHA256, under the trigger's "
                f"secret, of {TIMESTAMP}, a dot and the exact bytes of the body; sign what is sent, as it is sent",
            )
        _check_time(timestamp, now.timestamp(), self._parts.limits.skew)
        self._parts.measures.count("webhook_verified_total", 1, "newest" if fitting == live[0] else "old")
        return trigger


def _only(request: web.Request, name: str) -> str:
    """A header that may stand once; anything else signs nothing."""
    told = request.headers.getall(name, ())
    return told[0] if len(told) == 1 else ""


def _check_time(timestamp: bytes, now: float, allowed: float) -> None:
    off = seconds_off(timestamp, now)
    if off is None or off > allowed:
        how = "is no Unix time in seconds" if off is None else f"is {off:.0f} s from the server's clock"
        raise Refused(
            "E_TIMESTAMP_SKEW",
            f"{TIMESTAMP} {how}, {allowed:.0f} s are allowed; set the clock, and sign again for every try",
            details={"server_time": int(now)},
        )


def _read(trigger: Trigger, body: bytes, key: str | None, now: datetime) -> tuple[EventScope, bytes, str]:
    """The envelope of a body, with the hash of the body and where the key came from."""
    data = strict_json.decode(body)
    digest = hashlib.sha256(body)
    chosen = key if key is not None else f"body:{trigger.trigger_id}:{digest.hexdigest()}"
    envelope = Envelope(
        id=new_event_id(int(now.timestamp() * 1000)),
        type=webhook_event_type(trigger.trigger_id),
        idempotency_key=chosen,
        partition_key=chosen,
        occurred_at=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        data=body.decode(),
        trigger_id=trigger.trigger_id,
        project_id=trigger.project_id,
    )
    scope = keyed(trigger, EventScope(envelope, data))
    return scope, digest.digest(), "body" if key is None else "header"
