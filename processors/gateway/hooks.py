"""The webhook door: `POST /v1/{project}/{trigger}`, signed, answered once it is durable.

Checked in this order, the cheap and the telling first: method (405, by the router), content type (415), size (413),
signature as the trigger's sender makes it (401, alike for an unknown trigger), timestamp (408), JSON (422), key (400),
the type's schema (422), filter. Nothing of a body is read before its signature fitted.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.keys import check_key, key_in_header
from processors.gateway.parts import Parts, PassedOverError, json_response
from processors.gateway.senders import OURS, SENDERS, Claim, Sender
from processors.gateway.signatures import seconds_off
from processors.ports.catalog import CatalogSnapshot, Trigger
from processors.ports.door import Acceptance
from processors.runtime.event_schemas import check_data
from processors.runtime.matching import WEBHOOK, accepts, kept_miss, webhook_event_type
from processors.runtime.new_runs import EventScope, keyed, run_of
from schemas import strict_json
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.errors import Refused
from schemas.ids import new_event_id


class GreetedError(PassedOverError):
    """The sender only asked whether somebody is there; `answer` is what it waits for."""

    def __init__(self, answer: Mapping[str, str]) -> None:
        super().__init__()
        self.answer = answer


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
        delivery = _Delivery(parts, request, body)
        try:
            answer = await parts.accept_by_catalog(delivery.decide)
        except GreetedError as greeted:
            return json_response(greeted.answer)
        return await parts.told(answer, delivery.key_source)


class _Delivery:
    """One request, decided by the catalog at hand, and perhaps anew by the next one."""

    key_source = "body"

    def __init__(self, parts: Parts, request: web.Request, body: bytes) -> None:
        self._parts = parts
        self._request = request
        self._body = body

    def decide(self, snapshot: CatalogSnapshot) -> Acceptance:
        """Raises Refused, and PassedOverError where nothing is to be made of it."""
        parts = self._parts
        now = parts.door.now()
        trigger, sender, claim = self._verified(snapshot, now)
        parts.rates.take(trigger.project_id)  # not before: nobody else may use up what a project has
        key = key_in_header(self._request) if sender is OURS else None
        data = strict_json.decode(self._body)
        greeting = sender.reply(data)
        if greeting is not None:
            raise GreetedError(greeting)
        key, body_hash = self._identity(trigger, sender, key, sender.delivery(claim, data))
        check_data(snapshot, trigger.project_id, webhook_event_type(trigger.trigger_id), self._body, data)
        scope = _scope(trigger, self._body, data, key, now)
        if not accepts(trigger, scope):
            raise PassedOverError(kept_miss(trigger, scope.envelope))
        envelope, promised = scope.envelope, run_of(snapshot, trigger, scope)
        stored = parts.body_for_storage(trigger.project_id, envelope.data)
        return Acceptance(
            project_id=trigger.project_id,
            idempotency_key=envelope.idempotency_key,
            key_source=self.key_source,
            body_hash=body_hash,
            event_id=envelope.id,
            partition_key=promised.lane,  # between partitions the order of acceptance would be lost
            run_id=promised.run_id,
            envelope=encode_envelope(envelope if stored is None else referring(envelope, stored)),
            window=parts.limits.dedup_window,
            catalog=snapshot.version,
            body=stored,
        )

    def _verified(self, snapshot: CatalogSnapshot, now: datetime) -> tuple[Trigger, Sender, Claim]:
        """The trigger whose sender signed. Raises Refused E_SIGNATURE, E_TIMESTAMP_SKEW."""
        match, parts = self._request.match_info, self._parts
        trigger = snapshot.triggers.get((match["project"], match["trigger"]))
        if trigger is not None and trigger.type != WEBHOOK:
            trigger = None
        sender = OURS if trigger is None else SENDERS[trigger.spec.preset]
        claim = sender.claim(self._header)
        age = parts.secrets.fitting(trigger, sender, claim, self._body, now)
        if age is None or trigger is None:
            raise Refused(
                "E_SIGNATURE",
                "the signature does not fit: A44-Signature is the lower-case hex HMAC-SHA256, under the trigger's "
                "secret, of A44-Timestamp, a dot and the exact bytes of the body (where the trigger's `verify` names "
                "another sender, as that one signs); sign what is sent, as it is sent",
            )
        if claim.timestamp is not None:
            _check_time(str(sender.time_header), claim.timestamp, now.timestamp(), parts.limits.skew)
        parts.measures.count("webhook_verified_total", 1, age)
        return trigger, sender, claim

    def _header(self, name: str) -> str:
        """A header that may stand once; anything else signs nothing."""
        told = self._request.headers.getall(name, ())
        return told[0] if len(told) == 1 else ""

    def _identity(self, trigger: Trigger, sender: Sender, key: str | None, told: str | None) -> tuple[str, bytes]:
        """The key, and what must be the same under it. Raises Refused E_IDEMPOTENCY_KEY_REQUIRED, ..._INVALID.

        A sender may give one id to what it sends to several addresses: its ids are each trigger's own.
        """
        digest = hashlib.sha256(self._body)
        if sender is not OURS and told is not None:
            key = check_key(f"{trigger.trigger_id}:{told}")
            if sender.id_is_identity:
                digest = hashlib.sha256(key.encode())
        self.key_source = "body" if key is None else "header" if sender is OURS else "delivery"
        if key is None and trigger.spec.require_idempotency_key:
            raise Refused("E_IDEMPOTENCY_KEY_REQUIRED", f"{trigger.trigger_id} takes no request without a key")
        return key or f"body:{trigger.trigger_id}:{digest.hexdigest()}", digest.digest()


def _check_time(header: str, timestamp: bytes, now: float, allowed: float) -> None:
    off = seconds_off(timestamp, now)
    if off is None or off > allowed:
        how = "is no Unix time in seconds" if off is None else f"is {off:.0f} s from the server's clock"
        raise Refused(
            "E_TIMESTAMP_SKEW",
            f"{header} {how}, {allowed:.0f} s are allowed; set the clock, and sign again for every try",
            details={"server_time": int(now)},
        )


def _scope(trigger: Trigger, body: bytes, data: Any, key: str, now: datetime) -> EventScope:
    """The envelope of a body, in the trigger's lane."""
    envelope = Envelope(
        id=new_event_id(int(now.timestamp() * 1000)),
        type=webhook_event_type(trigger.trigger_id),
        idempotency_key=key,
        partition_key=key,
        occurred_at=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        data=body.decode(),
        trigger_id=trigger.trigger_id,
        project_id=trigger.project_id,
    )
    return keyed(trigger, EventScope(envelope, data))
