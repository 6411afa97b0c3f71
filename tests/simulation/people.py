"""Those outside: callers who send until they are answered, producers who write to Kafka, operators who cancel."""

import asyncio
import hashlib
from contextlib import suppress

from processors.adapters.postgres.wakeups import Channel
from processors.ports.door import Acceptance, Answer
from processors.ports.journal import Mail
from processors.ports.streams import Delivery, Outgoing
from processors.runtime.new_runs import iso, manual_run
from schemas.envelope import Envelope, body_hash, encode_envelope, referring
from schemas.errors import Unavailable
from schemas.ids import new_event_id
from schemas.stored_bodies import Reference, StoredBody
from tests.simulation.book import Book, Promise, type_of
from tests.simulation.installation import PROJECT, TOPICS, snapshot
from tests.simulation.memory.streams import MemoryProducer
from tests.simulation.memory.tables import Tables
from tests.simulation.nodes import Node, Site
from tests.simulation.scenario import Sending

PATIENCE_SECONDS = 4.0
OCCURRED_AT, DAY = "2026-07-31T23:58:00Z", "20260731"


class People:
    """All of them belong to the world: they outlive every process."""

    def __init__(self, site: Site, book: Book, gateways: list[Node]) -> None:
        self._site = site
        self._book = book
        self._gateways = gateways
        self._network = site.network

    async def send(self, sending: Sending) -> None:
        promise = self._book.begin(sending)
        if sending.kind == "direct":
            await self._produce(promise)
            return
        while True:
            node = self._gateways[self._network.pick(len(self._gateways))]
            answer = await self._ask(node, promise) if node.is_up else None
            if answer is not None:
                self._book.answered(promise, answer)
                return
            await asyncio.sleep(self._network.between(0.1, 1.0))

    async def _ask(self, node: Node, promise: Promise) -> Answer | None:
        """None: no answer, or not now; whether it was accepted is not known then."""
        loop = self._network.loop
        future: asyncio.Future[Answer | None] = loop.create_future()

        async def serve() -> None:
            answer = None
            with suppress(Unavailable):
                answer = await node.accept(self._acceptance(node, promise))
            self._network.after(self._network.delay(), arrive, answer)

        def arrive(answer: Answer | None) -> None:
            if not future.done():
                future.set_result(answer)

        process = node.process
        loop.later(process, self._network.delay(), lambda: loop.spawn(process, serve()))
        try:
            return await asyncio.wait_for(asyncio.shield(future), PATIENCE_SECONDS)
        except TimeoutError:
            return None

    def _acceptance(self, node: Node, promise: Promise) -> Acceptance:
        if node.door is None:
            raise Unavailable("E_UNAVAILABLE", "the gateway is starting")
        sending = promise.sending
        event_id = new_event_id(int(node.door.now().timestamp() * 1000))
        self._book.draw(promise, event_id)
        data, key = _data(sending), f"key-{sending.number}"
        if sending.kind == "manual":
            run = manual_run(
                snapshot(),
                project_id=PROJECT,
                workflow_id="wf_remind_buyer" if sending.number % 2 else "wf_settle_order",
                version=None,
                event_id=event_id,
                idempotency_key=key,
                occurred_at=OCCURRED_AT,
                input_text=data,
            )
            return Acceptance(PROJECT, key, "header", body_hash(data), event_id, key, run.run_id, run=run)
        return Acceptance(
            PROJECT,
            key,
            "header",
            body_hash(data),
            event_id,
            sending.lane,
            None,
            envelope=encode_envelope(self._envelope(sending, event_id)),
        )

    async def _produce(self, promise: Promise) -> None:
        """Until the broker has it; whether it is still there when it is read is the broker's affair."""
        sending, producer = promise.sending, MemoryProducer(self._site.broker)
        millis = int(self._site.database.now().timestamp() * 1000)
        event_id = promise.event_id or new_event_id(millis)
        promise.event_id = event_id
        self._book.draw(promise, event_id)
        envelope = self._envelope(sending, event_id)
        record = Outgoing(TOPICS.events, sending.lane.encode(), encode_envelope(envelope))
        while True:
            answers = await producer.send([record])
            if isinstance(answers[0], Delivery):
                return
            await asyncio.sleep(self._network.between(0.1, 1.0))

    def _envelope(self, sending: Sending, event_id: str) -> Envelope:
        data = _data(sending)
        plain = Envelope(
            id=event_id,
            type=type_of(sending),
            idempotency_key=f"key-{sending.number}",
            partition_key=sending.lane,
            occurred_at=iso(self._site.database.now()) if sending.is_urgent else OCCURRED_AT,
            data=data,
            project_id=PROJECT,
        )
        if not sending.is_large:
            return plain
        body = StoredBody(Reference(DAY, PROJECT, hashlib.sha256(data.encode()).hexdigest()), data.encode())
        self._site.storage.keep(body)
        self._book.stored[str(body.reference)] = data
        return referring(plain, body)

    def cancel(self) -> None:
        """The wish of an operator, in the mail of a run that lives."""
        database = self._site.database
        live = list(database.tables.live.values())
        if live:
            run_id = live[self._network.pick(len(live))].run.run_id
            database.end(database.begin(), lambda tables, _: self._leave_mail(tables, run_id))

    def _leave_mail(self, tables: Tables, run_id: str) -> None:
        live = tables.live[run_id]
        mail = Mail(tables.next_id(), run_id, "cancel", '{"reason": "asked"}', "maria")
        tables.mail[mail.mail_id] = mail
        live.has_mail = True
        is_parked = live.state in {"sleeping", "retrying", "waiting", "blocked"} or (
            live.state == "pending" and live.ready
        )
        if live.session is None and is_parked:
            live.state, live.ready, live.grant_class, live.visible_at = "pending", True, 0, None
        self._book.cancelled[run_id] = None
        self._site.wakes.wake(Channel.MAIL)


def _data(sending: Sending) -> str:
    return f'{{"script":{sending.number}}}'
