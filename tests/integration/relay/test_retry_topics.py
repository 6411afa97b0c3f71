"""Relay, broker and ingest while the storage is away: what needs it waits on retry topics, all else goes on."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka.admin
import pytest
import pytest_asyncio

from processors.adapters.kafka.consumer import ConsumerSettings, consume
from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.objects.storage import open_storage
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.ingest.ingest import Ingest
from processors.ingest.retries import Retries, until_unread
from processors.ports.ingest import Committed, Harvest
from processors.ports.measures import Measures
from processors.ports.streams import Outgoing
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.stored_bodies import StoredBody, too_large_to_travel
from tests.integration.log.lab import PROJECT
from tests.integration.log.polls import Told
from tests.integration.relay.conftest import Outbox, Stage
from tests.support.waiting import until
from topology.topics import TopicSpec

FLOW = """
name: notices
version: 1
trigger:
  event: order.noted
steps:
  - id: nap
    uses: sleep
    duration: 1s
"""
LETTERS = "select count(*) from automation.outbox where topic = %s"
SENT = "select coalesce(sum(seq), 0)::bigint from automation.relay_partitions where topic = %s"
MADE = "select count(*) from automation.live_runs where event_id = %s"
READ = "select coalesce(sum(next_offset), 0)::bigint from automation.ingest_progress where topic = %s"


class Dies(Exception):
    """The end of a process, as far as the other parts of this one can be told."""


class Mortal(PostgresIngestLog):
    """Dies behind its next commits, before anybody hears of them."""

    deaths = 0

    async def commit(self, harvest: Harvest) -> Committed:
        done = await super().commit(harvest)
        if self.deaths and harvest.postponed:
            self.deaths -= 1
            raise Dies
        return done


class Yard:
    """An installation whose ingest needs a storage; `folder` is where that is, while it is there."""

    def __init__(self, stage: Stage, outbox: Outbox, catalog: PostgresCatalog, folder: Path) -> None:
        self.stage, self.outbox, self.catalog, self.folder = stage, outbox, catalog, folder
        self.soon, self.late = f"{stage.topic}.retry.soon", f"{stage.topic}.retry.late"
        self.delays = {self.soon: 1.0, self.late: 4.0}
        self.measures = Measures()
        self.deaths = 0

    async def prepare(self) -> StoredBody:
        self.stage.specs += [TopicSpec(name, 2, 86_400_000) for name in self.delays]
        await self.stage.admin.ensure_topics(self.stage.specs)
        body = too_large_to_travel(PROJECT, f'{{"n":"{"9" * 300_000}"}}', datetime.now(UTC))
        assert body is not None
        await open_storage(f"file://{self.folder}").put(body)
        return body

    def lose_storage(self) -> None:
        shutil.move(self.folder, self.folder.with_name("away"))

    def find_storage(self) -> None:
        shutil.move(self.folder.with_name("away"), self.folder)

    async def send(self, *events: Envelope) -> None:
        producer = KafkaProducer(self.stage.bootstrap, "outside")
        await producer.send([Outgoing(self.stage.topic, b"\xff", encode_envelope(one), (), 0) for one in events])
        await producer.aclose()

    async def is_made(self, name: str) -> bool:
        return bool(await self.outbox.value(MADE, name) == 1)

    async def holds(self, query: str, topic: str, least: int) -> bool:
        return bool(await self.outbox.value(query, topic) >= least)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[asyncio.Task[None]]:
        stop, topic = asyncio.Event(), self.stage.topic
        log = Mortal(self.stage.dsn, f"{topic}.dead", 86_400.0)
        log.deaths = self.deaths
        await log.open()
        storage = open_storage(f"file://{self.folder}") if self.folder.exists() else self._away()
        ingest = Ingest(log, CurrentCatalog(self.catalog), Told(), self.measures, storage, None, self.delays)
        handlers = {topic: ingest, **dict.fromkeys(self.delays, Retries(ingest))}
        reads = [
            consume(ConsumerSettings(self.stage.bootstrap, f"{name}.group", name, f"in-{name}"), handler, log, stop)
            for name, handler in handlers.items()
        ]
        task = asyncio.ensure_future(asyncio.gather(*reads))
        try:
            yield task  # type: ignore[misc]
        finally:
            stop.set()
            await asyncio.wait([task])
            await log.aclose()

    def _away(self) -> object:
        """Storage that was there when it was opened."""
        self.find_storage()
        opened = open_storage(f"file://{self.folder}")
        self.lose_storage()
        return opened


def event(name: str) -> Envelope:
    return Envelope(
        id=name, type="order.noted", idempotency_key=name, partition_key="p", occurred_at="2026-07-19T14:00:00Z",
        data='{"n":1}', project_id=PROJECT,
    )  # fmt: skip


@pytest_asyncio.fixture
async def yard(stage: Stage, tmp_path: Path) -> AsyncIterator[Yard]:
    async with open_pool(stage.dsn, "test", size=2) as pool, stage.writer() as outbox:
        catalog = PostgresCatalog(pool)
        await catalog.publish(PROJECT, {"notices.yaml": FLOW}, dev=False, actor="test")
        yield Yard(stage, outbox, catalog, tmp_path / "bodies")


@pytest.fixture(autouse=True)
def often_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.relay.topics_in_use._FRESH_SECONDS", 0.3)
    monkeypatch.setattr("processors.ingest.retries.LOOK_SECONDS", 0.3)


@pytest.mark.timeout(180)
async def test_what_needs_a_storage_that_is_away_goes_down_the_ladder_and_its_neighbours_do_not_wait(
    yard: Yard,
) -> None:
    body = await yard.prepare()
    yard.lose_storage()
    async with yard.stage.relay(), yard.reading():
        await yard.send(event("before"), referring(event("big"), body), event("behind"))
        await until(lambda: yard.is_made("behind"), "what stands behind it is a run", 60)
        assert await yard.is_made("before")
        await until(lambda: yard.holds(LETTERS, yard.late, 1), "it is put off again, for longer", 60)
        assert not await yard.is_made("big")
        yard.find_storage()
        await until(lambda: yard.is_made("big"), "it becomes a run", 60)
    assert await yard.outbox.value(LETTERS, yard.soon) == 1
    assert yard.measures.value("records_postponed_total", "E_STORAGE_UNAVAILABLE") >= 2
    assert await yard.outbox.value("select count(*) from automation.dead_letters") == 0


@pytest.mark.timeout(180)
async def test_an_ingest_that_dies_behind_the_commit_that_puts_a_record_off_loses_and_doubles_nothing(
    yard: Yard,
) -> None:
    """The offset and the letter are in Postgres, Kafka was told nothing, and another begins."""
    body = await yard.prepare()
    yard.lose_storage()
    await yard.send(referring(event("big"), body))
    yard.deaths = 1
    async with yard.stage.relay():
        async with yard.reading() as dying:
            with pytest.raises(Dies):
                await asyncio.wait_for(asyncio.shield(dying), 60)
        assert await yard.outbox.value(READ, yard.stage.topic) == 1
        yard.deaths = 0
        yard.find_storage()
        async with yard.reading():
            await until(lambda: yard.is_made("big"), "it becomes a run", 60)
    assert await yard.outbox.value(LETTERS, yard.soon) == 1
    assert await yard.outbox.value(LETTERS, yard.late) == 0


@pytest.mark.timeout(240)
async def test_a_retry_topic_that_the_broker_loses_is_filled_again(yard: Yard) -> None:
    body = await yard.prepare()
    yard.lose_storage()
    await yard.send(referring(event("big"), body))
    async with yard.reading():
        await until(lambda: yard.holds(LETTERS, yard.soon, 1), "it is put off", 60)
    async with yard.stage.relay():
        await until(lambda: yard.holds(SENT, yard.soon, 1), "the letter is on its topic", 60)
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": yard.stage.bootstrap})
    await asyncio.wrap_future(client.delete_topics([yard.soon])[yard.soon])
    yard.find_storage()
    async with yard.stage.relay(), yard.reading():
        await until(lambda: yard.is_made("big"), "it becomes a run", 90)


@pytest.mark.timeout(180)
async def test_an_ingest_without_a_storage_sees_what_an_earlier_one_has_left(yard: Yard) -> None:
    body = await yard.prepare()
    log = PostgresIngestLog(yard.stage.dsn, f"{yard.stage.topic}.dead", 86_400.0)
    await log.open()
    assert not await log.is_unread(yard.delays)
    yard.lose_storage()
    await yard.send(referring(event("big"), body))
    async with yard.reading():
        await until(lambda: yard.holds(LETTERS, yard.soon, 1), "it is put off", 60)
    async with yard.stage.relay():
        await asyncio.wait_for(until_unread(lambda: log.is_unread(yard.delays), asyncio.Event()), 60)
        yard.find_storage()
        async with yard.reading():
            await until(lambda: yard.is_made("big"), "it becomes a run", 60)
    assert not await log.is_unread(yard.delays)
    await log.aclose()
