"""Relay, broker and ingest together: what is lost on the way comes again, and lanes keep their order."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import LiteralString

import pytest
import pytest_asyncio

from ops.topics import Topology, apply
from processors.adapters.kafka.consumer import ConsumerSettings, consume
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.adapters.postgres.wakeups import Notifier
from processors.ingest.ingest import Ingest
from processors.ports.door import Acceptance
from processors.ports.measures import Measures
from processors.ports.streams import Delivery, Outgoing
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, body_hash, encode_envelope
from schemas.errors import Refused, Unavailable
from schemas.ids import new_event_id
from tests.integration.log.lab import PROJECT
from tests.integration.log.polls import FLOW, Told
from tests.integration.relay.conftest import PARTITIONS, Outbox, Stage, Wrapped
from tests.support.waiting import until

LANES = 5
DISORDER = (
    "select count(*) from (select event_id, lag(event_id) over (partition by lane order by lane_seq) as before,"
    " lane_seq, row_number() over (partition by lane order by lane_seq) as place from automation.live_runs) r"
    " where before > event_id or lane_seq <> place"
)


class Line:
    """Events go in at a door of their own and come out as runs, while `reading`."""

    def __init__(self, stage: Stage, door: PostgresDoor, outbox: Outbox, catalog: PostgresCatalog) -> None:
        self.stage, self.door, self.outbox, self.catalog = stage, door, outbox, catalog
        self.measures = Measures()
        self.accepted: list[str] = []
        self._began = time.time_ns() // 1_000_000

    async def accept(self, count: int) -> None:
        for _ in range(count):
            number = len(self.accepted)
            lane = f"lane-{number % LANES}"
            envelope = Envelope(
                id=new_event_id(self._began + number),
                type="order.paid",
                idempotency_key=f"k-{number}",
                partition_key=lane,
                occurred_at="2026-07-19T14:00:00Z",
                data=f'{{"lane":"{lane}"}}',
                project_id=PROJECT,
            )
            digest, value = body_hash(envelope.data), encode_envelope(envelope)
            await self.door.accept(Acceptance(PROJECT, f"k-{number}", "header", digest, envelope.id, lane, None, value))
            self.accepted.append(envelope.id)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        stop, topic = asyncio.Event(), self.stage.topic
        log = PostgresIngestLog(self.stage.dsn, f"{topic}.dead", 86_400.0)
        await log.open()
        ingest = Ingest(log, CurrentCatalog(self.catalog), Told(), self.measures)
        settings = ConsumerSettings(self.stage.bootstrap, f"{topic}.group", topic, "ingest")
        task = asyncio.create_task(consume(settings, ingest, log, stop))
        try:
            yield
        finally:
            stop.set()
            await task
            await log.aclose()

    async def all_are_runs(self) -> bool:
        return bool(await self.outbox.value("select count(*) from automation.live_runs") == len(self.accepted))

    async def check(self) -> None:
        await until(self.all_are_runs, "every accepted event is a run", 60)
        assert await self.outbox.value("select count(distinct event_id) from automation.live_runs") == len(
            self.accepted
        )
        assert await self.outbox.value(DISORDER) == 0


@pytest_asyncio.fixture
async def line(stage: Stage) -> AsyncIterator[Line]:
    notifier = Notifier(stage.dsn)
    door = PostgresDoor(stage.dsn, stage.topic, notifier, lambda _: None)
    async with open_pool(stage.dsn, "test", size=1) as pool, stage.writer() as outbox:
        catalog = PostgresCatalog(pool)
        await catalog.publish(PROJECT, {"orders.yaml": FLOW}, dev=False, actor="test")
        await door.open()
        yield Line(stage, door, outbox, catalog)
        await door.aclose()
        await notifier.aclose()


class Loses(Wrapped):
    """Says of some records that the broker has them, and it has not."""

    def __init__(self, *lost: int) -> None:
        super().__init__()
        self.lost = set(lost)
        self.count = 0

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        kept = []
        for record in batch:
            self.count += 1
            if self.count not in self.lost:
                kept.append(record)
        answers = iter(await super().send(kept))
        return [next(answers) if record in kept else Delivery(0, 0) for record in batch]


@pytest.fixture(autouse=True)
def often_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.relay.topics_in_use._FRESH_SECONDS", 0.3)


@pytest.mark.timeout(180)
async def test_what_the_broker_lost_is_published_again_and_becomes_its_runs_in_order(stage: Stage, line: Line) -> None:
    losing = Loses(20, 21, 22, 60, 150)
    async with line.reading(), stage.relay(wrap=losing.wrap):
        for _ in range(10):
            await line.accept(20)
        await line.check()
        await until(line.outbox.is_answered, "no request is left")
    assert losing.count > len(line.accepted)
    gaps, rewinds = line.measures.value("relay_gaps_total"), stage.measures.value("relay_rewinds_total")
    assert 1 <= rewinds <= gaps <= len(losing.lost) * LANES


@pytest.mark.timeout(180)
async def test_a_topic_emptied_under_load_loses_no_event_and_makes_no_run_twice(stage: Stage, line: Line) -> None:
    async with line.reading(), stage.relay():
        await line.accept(100)
        await until(line.all_are_runs, "the first hundred are runs", 60)
        await stage.lose_topic()
        await line.accept(100)
        await line.check()


@pytest.mark.timeout(240)
@pytest.mark.skipif(os.environ.get("A44_TEST_BROKER") != "apache", reason="the embedded broker adds no partitions")
async def test_d21_a_key_keeps_its_order_though_partitions_are_added_under_its_backlog(
    stage: Stage, line: Line
) -> None:
    async with stage.relay():
        async with line.reading():
            await line.accept(50)
            await until(line.all_are_runs, "the first fifty are runs", 60)
        await line.accept(50)
        backlog = "select sum(seq) from automation.relay_partitions where topic = %s"
        await until(lambda: equals(line, 100, backlog, stage.topic), "a backlog is in Kafka")
        await stage.add_partitions(3 * PARTITIONS)
        await line.accept(50)
        async with line.reading():
            await line.check()
            await line.accept(50)
            await line.check()
    used = "select count(*) > 0 from automation.relay_partitions where topic = %s and partition >= %s"
    assert await line.outbox.value(used, stage.topic, PARTITIONS)


@pytest.mark.timeout(240)
@pytest.mark.skipif(os.environ.get("A44_TEST_BROKER") != "apache", reason="the embedded broker adds no partitions")
async def test_d21_apply_lets_a_topic_grow_under_load_and_every_key_keeps_its_order(stage: Stage, line: Line) -> None:
    grown = grown_topology(stage)
    stop = asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            await line.accept(5)

    async with stage.relay(), line.reading():
        await line.accept(20)
        loading = asyncio.create_task(load())
        left = await apply(grown, stage.dsn, 60.0)
        stop.set()
        await loading
        assert [one for one in left if one.topic == stage.topic] == []

        async def new_partitions_are_used() -> bool:
            await line.accept(5)
            return await equals(line, True, used, stage.topic, PARTITIONS)

        used = "select count(*) > 0 from automation.relay_partitions where topic = %s and partition >= %s"
        await until(new_partitions_are_used, "the relay, which asks now and then, uses the new partitions", 60)
        await line.accept(50)
        await line.check()


@pytest.mark.timeout(120)
async def test_a_topic_that_ingest_does_not_read_up_does_not_grow_and_is_let_go(stage: Stage, line: Line) -> None:
    grown = grown_topology(stage)
    async with stage.relay():
        async with line.reading():
            await line.accept(10)
            await until(line.all_are_runs, "ten are runs", 60)
        await line.accept(10)
        given = "select coalesce(sum(seq), 0) from automation.relay_partitions where topic = %s"
        await until(lambda: equals(line, 20, given, stage.topic), "the relay has published all")
        with pytest.raises(Unavailable, match="has not grown"):
            await apply(grown, stage.dsn, 0.5)
        assert (await stage.admin.partition_counts([stage.topic]))[stage.topic] == PARTITIONS
        async with line.reading():
            await line.accept(10)
            await line.check()


def grown_topology(stage: Stage) -> Topology:
    return Topology([replace(stage.spec, partitions=3 * PARTITIONS)], stage.topic.rpartition(".")[0], stage.admin)


async def equals(line: Line, expected: int, query: LiteralString, *params: object) -> bool:
    return bool(await line.outbox.value(query, *params) == expected)
