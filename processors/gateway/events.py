"""The door for published events: durable before the answer; which runs an event makes is ingest's to say.

One event is answered by itself. A batch is answered event by event, in its order: one that is refused fails alone, and
what was accepted stays accepted.
"""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from aiohttp import web

from processors.gateway.bodies import read_body
from processors.gateway.event_forms import Arrived, Posted, Reader, form_of, opened
from processors.gateway.keys import key_in_header
from processors.gateway.parts import Parts, json_response
from processors.gateway.problems import REQUEST, problem_of
from processors.ports.catalog import CatalogSnapshot
from processors.ports.door import Acceptance, Answer, Outcome
from processors.ports.tokens import READ, WRITE
from processors.runtime.event_schemas import check_data
from schemas.envelope import body_hash, encode_envelope, referring
from schemas.errors import AutomationError, Refused

REFUSED = "refused"
_MULTI_STATUS = 207
_LONGEST_ID = 255
_A_TURN = 100  # events that are read before other requests have a turn


class Events:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def publish(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        parts.rates.take(token.project_id)
        form = form_of(request)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        reader = Reader(token.project_id, parts.door.now(), key_in_header(request))
        posted = opened(request, form, body, reader, parts.limits.batch)
        if posted.is_batch:
            parts.rates.charge(token.project_id, len(posted.items) - 1)
            return await self._take_batch(posted, request[REQUEST])
        arrived = posted.read(body)
        return await parts.told(await self._accept(arrived), arrived.key_source)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The runs that an event has made, once ingest has decided it."""
        token = await self._parts.access.require(request, READ)
        event_id = request.match_info["event"]
        found = await self._parts.queries.find_event(token.project_id, event_id) if _may_be_id(event_id) else None
        if found is None:
            raise Refused(
                "E_EVENT_NOT_FOUND",
                f"no event {event_id[:80]!r} was taken up in this project; one that was accepted this moment is on its "
                "way: ask again",
            )
        return json_response(found)

    async def _take_batch(self, posted: Posted, request_id: str) -> web.Response:
        """All at once: the door takes them in this order, many in one commit. Other requests have turns meanwhile."""
        taken: list[asyncio.Task[dict[str, Any]]] = []
        for item in posted.items:
            taken.append(asyncio.create_task(self._take(item, posted, request_id)))
            if len(taken) % _A_TURN == 0:
                await asyncio.sleep(0)
        results = await asyncio.gather(*taken)
        counts = Counter(result["status"] for result in results)
        told = {name: counts[name] for name in (Outcome.CREATED, Outcome.DUPLICATE, Outcome.CONFLICT, REFUSED)}
        return json_response({**told, "results": results}, _MULTI_STATUS)

    async def _take(self, item: bytes, posted: Posted, request_id: str) -> dict[str, Any]:
        try:
            arrived = posted.read(item)
            answer = await self._accept(arrived)
            return await self._parts.document(answer, arrived.key_source)
        except AutomationError as error:
            is_conflict = error.code == "E_IDEMPOTENCY_CONFLICT"
            return {"status": Outcome.CONFLICT if is_conflict else REFUSED, "error": problem_of(error, request_id)}

    async def _accept(self, arrived: Arrived) -> Answer:
        return await self._parts.accept_by_catalog(partial(self._acceptance, arrived))

    def _acceptance(self, arrived: Arrived, snapshot: CatalogSnapshot) -> Acceptance:
        """Raises Refused E_EVENT_SCHEMA."""
        envelope, parts = arrived.envelope, self._parts
        check_data(snapshot, envelope.project_id, envelope.type, envelope.data)
        stored = parts.body_for_storage(envelope.project_id, envelope.data)
        return Acceptance(
            project_id=envelope.project_id,
            idempotency_key=envelope.idempotency_key,
            key_source=arrived.key_source,
            body_hash=body_hash(envelope.data),
            event_id=envelope.id,
            partition_key=envelope.partition_key,
            run_id=None,
            envelope=encode_envelope(envelope if stored is None else referring(envelope, stored)),
            window=parts.limits.dedup_window,
            catalog=snapshot.version,
            body=stored,
        )


def _may_be_id(text: str) -> bool:
    """Whether it can be asked for at all: text of another form never was an id."""
    return len(text) <= _LONGEST_ID and text.isprintable()
