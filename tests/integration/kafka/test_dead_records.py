"""Records of which no event can be made, from broker to log: kept with their bytes, or waited for, never lost."""

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest_asyncio
from structlog.testing import capture_logs

from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.ingest.ingest import Ingest
from processors.ports.measures import Measures
from processors.ports.runs import Grant
from processors.ports.streams import Outgoing, Phase
from processors.runtime.current_catalog import CurrentCatalog
from tests.integration.kafka.conftest import Place, Reading
from tests.support.waiting import until

REFUSE = "alter table automation.dead_letters add constraint refuse_all check (false) not valid"
ALLOW = "alter table automation.dead_letters drop constraint refuse_all"
RUBBISH = b"\xc3\x01 no event \x00\xff"


class Silent:
    def granted(self, grants: Sequence[Grant]) -> None: ...


class Entry:
    """An ingest on the real log, as the handler of a real consumer."""

    def __init__(self, dsn: str, log: PostgresIngestLog, catalog: PostgresCatalog) -> None:
        self.dsn, self.log, self.measures = dsn, log, Measures()
        self.ingest = Ingest(log, CurrentCatalog(catalog), Silent(), self.measures)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as conn:
            found = await conn.execute(statement)
            return await found.fetchall() if found.description else []

    async def offset(self) -> int:
        (row,) = await self.rows("select coalesce(max(next_offset), 0) from automation.ingest_progress") or [(0,)]
        return int(row[0])


@pytest_asyncio.fixture
async def entry(migrated_database: str) -> AsyncIterator[Entry]:
    async with open_pool(migrated_database, "test") as pool:
        log = PostgresIngestLog(migrated_database, "t.dead-letters", 3600.0)
        async with contextlib.aclosing(log):
            yield Entry(migrated_database, log, PostgresCatalog(pool))


def event(topic: str, number: int) -> Outgoing:
    envelope = {
        "id": f"evt_{number}",
        "type": "orders.paid",
        "idempotency_key": f"order:{number}",
        "partition_key": "p",
        "occurred_at": "2026-11-29T00:00:00Z",
        "attempt": 1,
        "project_id": "dev",
        "data": {"number": number},
    }
    return Outgoing(topic, b"k", json.dumps(envelope).encode(), (), 0)


async def test_d09_d11_a_record_that_cannot_be_decoded_is_in_the_dead_letters_before_its_offset_moves(
    place: Place, producer: KafkaProducer, reading: Reading, entry: Entry
) -> None:
    await producer.send([event(place.topic, 1), Outgoing(place.topic, b"k", RUBBISH, (), 0), event(place.topic, 2)])
    reading.handler = entry.ingest
    async with reading.at(place, entry.log):
        await until(lambda: len(reading.records) == 3, "all three are taken", 60)
    letters = await entry.rows(
        "select raw, source_topic, source_partition, source_offset, reason, xmin::text from automation.dead_letters"
    )
    (progress,) = await entry.rows("select next_offset, xmin::text from automation.ingest_progress")
    assert [(bytes(row[0]), *row[1:5]) for row in letters] == [(RUBBISH, place.topic, 0, 1, "undecodable")]
    assert progress == (3, letters[0][5])  # one transaction
    assert await entry.rows("select count(*) from automation.inbox") == [(2,)]


async def test_d11_a_dead_letter_that_cannot_be_written_holds_its_partition_up_and_is_counted(
    place: Place, producer: KafkaProducer, reading: Reading, entry: Entry
) -> None:
    await entry.rows(REFUSE)
    await producer.send([Outgoing(place.topic, b"k", RUBBISH, (), 0)])
    reading.handler = entry.ingest
    with capture_logs() as logs:
        async with reading.at(place, entry.log):
            await until(lambda: entry.measures.value("dead_letter_write_failures_total") > 2, "it is tried again", 60)
            await producer.send([event(place.topic, 1)])
            assert reading.records == []
            assert await entry.offset() == 0
            assert [state.phase for state in reading.states if state.phase is Phase.RETRYING]
            await entry.rows(ALLOW)
            await until(lambda: len(reading.records) == 2, "both are taken", 60)
    assert await entry.offset() == 2
    assert await entry.rows("select count(*) from automation.dead_letters") == [(1,)]
    assert await entry.rows("select count(*) from automation.inbox") == [(1,)]
    told = [line for line in logs if line["event"] == "dead_letters_not_written"]
    assert {tuple(line["partitions"]) for line in told} == {(0,)}
