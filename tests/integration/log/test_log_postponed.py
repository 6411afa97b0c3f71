"""Records that are put off, on the real log: in one transaction with their offset, once in each turn, as they were."""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from processors.ingest.ingest import Ingest
from processors.ingest.postponing import Source, source_of
from processors.ports.relay import OutboxRow
from processors.ports.streams import Record
from processors.relay.numbering import Numbering
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import encode_envelope, referring
from schemas.errors import Unavailable
from schemas.stored_bodies import too_large_to_travel
from tests.integration.log.lab import EVENTS, PROJECT, Lab
from tests.integration.log.polls import SEAL_KEY, Stage, Topic

RETRY = "t.retry.10s.v1"
ROWS = "select xid::text::bigint as xid, id, topic, partition_key, headers, value from automation.outbox order by id"


class Away:
    async def get(self, _reference: object) -> bytes:
        raise Unavailable("E_STORAGE_UNAVAILABLE", "away")


def patient(stage: Stage) -> Ingest:
    catalog = CurrentCatalog(stage.catalog)
    return Ingest(stage.log, catalog, stage.told, stage.measures, Away(), None, {RETRY: 10.0})  # type: ignore[arg-type]


def large(topic: Topic, key: bytes | None = b"k", **fields: object) -> Record:
    body = too_large_to_travel(PROJECT, f'{{"amount":"{"9" * 300_000}"}}', datetime.now(UTC))
    assert body is not None
    told = {"type": "order.large", **fields}
    made = topic.record(encode_envelope(referring(topic.event(**told), body)))
    return msgspec.structs.replace(made, key=key, headers=(("trace", b"\xff\x00"), ("trace", None)))


async def letters(lab: Lab) -> list[Record]:
    """As the relay publishes them."""
    numbering, found = Numbering(0), []
    numbering.begin({}, SEAL_KEY)
    for at, row in enumerate(await lab.rows(ROWS)):
        assert row["topic"] == RETRY
        out = numbering.outgoing(_row(row), 1)
        found.append(Record(RETRY, 0, at, out.key, out.value, out.headers, 1))
    return found


def first_of(letter: Record) -> Source:
    return source_of(letter, is_relayed=True)


def _row(row: dict[str, object]) -> OutboxRow:
    return msgspec.convert(row, type=OutboxRow)


async def test_a_record_is_put_off_in_the_transaction_that_moves_its_offset(stage: Stage) -> None:
    topic = Topic()
    first = large(topic, key=b"\xff\x00")
    await patient(stage)([first, topic.direct(data='{"lane":"a"}')])
    assert await stage.lab.value("select next_offset from automation.ingest_progress") == 2
    xids = "select xmin::text from automation.ingest_progress union select xmin::text from automation.outbox"
    assert len(await stage.lab.column(xids)) == 1
    assert await stage.lab.value("select count(*) from automation.live_runs") == 1
    (letter,) = await letters(stage.lab)
    assert first_of(letter).record == first
    assert await stage.lab.value("select count(*) from automation.dead_letters") == 0


@pytest.mark.parametrize("key", [None, b"", b"a\0b", "schlüssel".encode()])
async def test_whatever_the_key_is_it_comes_back(stage: Stage, key: bytes | None) -> None:
    first = large(Topic(), key=key)
    await patient(stage)([first])
    (letter,) = await letters(stage.lab)
    assert first_of(letter).record == first


async def test_two_owners_of_a_partition_put_a_record_off_once(stage: Stage) -> None:
    """One of them may have died, or not: what it had committed is found by the other."""
    topic, other = Topic(), await stage.restarted()
    records = [large(topic) for _ in range(20)]
    await asyncio.gather(patient(stage)(records), patient(other)(records[:15]))
    await patient(await stage.restarted())(records)
    found = [first_of(letter).record.offset for letter in await letters(stage.lab)]
    assert sorted(found) == list(range(20))


async def test_what_comes_back_twice_is_put_off_again_once_and_ends_as_from_its_first_place(stage: Stage) -> None:
    topic = Topic(partition=1)
    topic.offset = 7
    await patient(stage)([large(topic, idempotency_key="shared")])
    await patient(stage)([topic.direct(idempotency_key="shared")])
    (letter,) = await letters(stage.lab)
    await stage.log.positions(RETRY, "topic-9", [0])
    again = msgspec.structs.replace(letter, offset=1)
    await patient(stage)([letter, again])
    both = await letters(stage.lab)
    assert [first_of(one).tries for one in both] == [1, 2]

    class Back:
        async def get(self, _reference: object) -> bytes:
            return b'{"amount":900}'

    ingest = patient(stage)
    ingest._storage = Back()  # type: ignore[assignment]
    await ingest([msgspec.structs.replace(both[1], offset=2)])
    (dead,) = await stage.lab.rows("select source_topic, source_partition, source_offset from automation.dead_letters")
    assert dead == {"source_topic": EVENTS, "source_partition": 1, "source_offset": 7}
    assert await stage.lab.rows("select topic, next_offset from automation.ingest_progress order by 1") == [
        {"topic": EVENTS, "next_offset": 9},
        {"topic": RETRY, "next_offset": 3},
    ]
