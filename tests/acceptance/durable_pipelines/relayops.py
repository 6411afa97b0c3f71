"""RelayOps on the real stack: tenants send documents, a pipeline extracts them, a board opens one review for each."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from anthares44.automation import Inbox
from ops.client import Client
from ops.client.rest import Answer
from ops.local import LocalStack
from ops.local.role_process import RoleProcess
from schemas.errors import Unavailable
from schemas.run_events import RunEvent, decode_run_event
from tests.support.waiting import until

RUN_EVENTS = "a44.run-events.v1"
PATIENCE = 60.0
TERMINAL = {"succeeded", "failed", "cancelled"}

PIPELINE = """
import json
import pathlib

from anthares44.automation import PermanentError, RetryableError, step, workflow

LEDGER = pathlib.Path({ledger!r})


def note(what, document):
    with LEDGER.open("a") as file:
        file.write(json.dumps([what, document["document_id"]]) + "\\n")


def extract(document):
    note("extract", document)
    if document.get("schema") == "unknown":
        raise PermanentError("no total in " + document["text"], code="E_DOCUMENT_SCHEMA")
    if document.get("model") == "away":
        raise RetryableError("the model did not answer for " + document["text"])
    return {{"total": document.get("total")}}


@workflow("document", version=1, trigger={{"event": "document.received"}})
async def document(ctx, input):
    fields = await step.run(
        "extract", timeout="20s", retry={{"max": 3, "base": "10ms", "cap": "20ms"}}, fn=lambda: extract(input)
    )
    await step.run("validate", timeout="20s", fn=lambda: note("validate", input))
    return {{"document_id": input["document_id"], **fields}}


@workflow("patient-document", version=1, queue="q_patient")
async def patient_document(ctx, input):
    return await document(ctx, input)
"""
# A run that loses its executor again and again is not given up here.
QUEUES = "queues: [{ id: q_patient, maxAttempts: 100 }]\n"


def operation_key(tenant: str, document: str, version: int) -> str:
    """Tenant, document and operation version, always all three."""
    return f"{tenant}:{document}:v{version}"


@dataclass(frozen=True)
class Tenant:
    """A project of RelayOps, through the public doors only."""

    name: str
    client: Client

    async def send(self, document: str, version: int = 1, **data: object) -> Answer:
        """An event over HTTP: this document is there, and this is its operation version."""
        key = operation_key(self.name, document, version)
        body = {"type": "document.received", "idempotency_key": key, "data": {"document_id": document, **data}}
        text = json.dumps(body).encode()
        return await asyncio.to_thread(self.client._call, "POST", "/v1/automation/events", text)

    async def run(self, document: str, workflow: str = "wf_document", **data: object) -> str:
        """A run by hand; its id."""
        text = json.dumps({"document_id": document, **data})
        key = operation_key(self.name, document, 1)
        answer = await asyncio.to_thread(self.client.run, workflow, text, key)
        return str(answer.document["run_id"])

    async def listed(self, document: str) -> list[dict[str, Any]]:
        """The runs of a document, as the list shows them, newest first."""
        page = await asyncio.to_thread(self.client.runs, limit=500, filters={})
        prefix = f"{self.name}:{document}:v"
        return [run for run in page["runs"] if run["idempotency_key"].startswith(prefix)]

    async def show(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await asyncio.to_thread(self.client.show, run_id)).document
        return found

    async def ended(self, document: str, count: int = 1) -> list[dict[str, Any]]:
        """The runs of a document, once there are so many and all have ended."""
        found: list[dict[str, Any]] = []

        async def all_ended() -> bool:
            found[:] = await self.listed(document)
            return len(found) >= count and all(run["state"] in TERMINAL for run in found)

        await until(all_ended, f"{count} runs of {document} end", PATIENCE)
        assert len(found) == count, found
        return [await self.show(run["run_id"]) for run in found]


class ReviewBoard:
    """A consumer of run events with a database of its own: one review for each document that was extracted."""

    def __init__(self, dsn: str) -> None:
        self._conn = psycopg.connect(dsn)
        self._conn.execute("create table if not exists reviews (document text not null, run_id text not null)")
        self.inbox = Inbox(self._conn, consumer="review-board")
        self.inbox.create_table()

    def close(self) -> None:
        self._conn.close()

    def handle(self, event: RunEvent) -> Mapping[str, Any]:
        return self.inbox.handle(event, self._open_review)

    def reviews(self, run_id: str) -> int:
        row = self._conn.execute("select count(*) from reviews where run_id = %s", (run_id,)).fetchone()
        self._conn.rollback()
        assert row is not None
        return int(row[0])

    def opened_at(self, run_id: str) -> str:
        """When the event of a run was applied, as the inbox noted it; ISO 8601 in UTC."""
        row = self._conn.execute(
            "select to_char(i.handled_at::timestamptz at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
            " from automation_inbox i where i.consumer = 'review-board' and i.event_id like %s",
            (f"%{run_id.removeprefix('run_')}%",),
        ).fetchone()
        self._conn.rollback()
        assert row is not None
        return str(row[0])

    def _open_review(self, event: RunEvent) -> None:
        self._conn.execute("insert into reviews values (%s, %s)", (event.event_id, event.run_id))


@dataclass(frozen=True)
class RelayOps:
    stack: LocalStack
    tenant: Tenant
    board: ReviewBoard
    ledger: Path

    def extractions(self, document: str) -> int:
        """How often the extraction of a document really ran."""
        return self._noted("extract", document)

    def validations(self, document: str) -> int:
        return self._noted("validate", document)

    def _noted(self, what: str, document: str) -> int:
        return self.ledger.read_text().splitlines().count(json.dumps([what, document]))

    async def rows(self, text: LiteralString, *values: object) -> Sequence[tuple[Any, ...]]:
        """Of the log, as an operator reads it."""
        async with await psycopg.AsyncConnection.connect(self.stack.log_dsn) as conn:
            return await (await conn.execute(text, values)).fetchall()

    async def run_events(self, run_id: str, count: int = 1) -> list[RunEvent]:
        """All publications of a run's events, once there are so many."""
        found: list[RunEvent] = []

        async def published() -> bool:
            values = await asyncio.to_thread(values_of, self.stack.kafka_bootstrap, RUN_EVENTS)
            found[:] = [event for event in map(decode_run_event, values) if event.run_id == run_id]
            return len(found) >= count

        await until(published, f"{count} events of {run_id} are published", PATIENCE)
        return found

    async def relay_is_done(self) -> None:
        """Everything that was committed to the outbox is behind the relay's cursor."""

        async def drained() -> bool:
            rows = await self.rows(
                "select count(*) from automation.outbox o, automation.relay_shards s"
                " where s.shard = o.shard and (o.xid, o.id) > (s.cursor_xid, s.cursor_id)"
            )
            return int(rows[0][0]) == 0

        await until(drained, "the relay has published all", PATIENCE)

    @asynccontextmanager
    async def killed_at(self, role: str, point: str) -> AsyncIterator[RoleProcess]:
        """The role lives until it reaches the place; what is in the block brings it there. After the block it is dead;
        it is for the test to look round and to start it again.
        """
        process = self.stack.processes[role]
        await process.stop()
        with suppress(Unavailable):  # it may get there before it is ready
            await process.start({"A44_CRASH_POINT": point})
        yield process
        await until(lambda: not process.is_running, f"{role} dies at {point}", PATIENCE)
        told = await process.ended()
        assert "exit status 137" in told, told  # by SIGKILL


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    """Every record's value in a topic, from its beginning to its end of now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    try:
        found = consumer.list_topics(topic, timeout=20).topics[topic]
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            for number in found.partitions
        }
        left = {number for number, (low, high) in ends.items() if high > low}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        return _read(consumer, left, lambda number: ends[number][1])
    finally:
        consumer.close()


def _read(consumer: Consumer, left: set[int], end_of: Callable[[int], int]) -> list[bytes]:
    values = []
    while left:
        record: Message | None = consumer.poll(20)
        assert record is not None, f"nothing more came, though partitions {left} go on"
        assert record.error() is None, record.error()
        value, partition, offset = record.value(), record.partition(), record.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        values.append(value)
        if offset + 1 >= end_of(partition):
            left.discard(partition)
    return values


def is_unprivileged_reachable(folder: Path) -> None:
    """Let the account that step hosts run as under root pass to a folder of a test."""
    for place in (folder, *folder.parents):
        if place.name.startswith("pytest-of-"):
            break
        place.chmod(place.stat().st_mode | 0o011)
    if os.geteuid() == 0:
        folder.chmod(0o777)
