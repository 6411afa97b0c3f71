"""A large poll is written in parts, one after the other, and nothing is written behind a part that failed."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from processors.ingest.ingest import MOST_BYTES, MOST_RECORDS, Ingest
from processors.ports.catalog import CatalogSnapshot
from processors.ports.ingest import Committed, Followed, Harvest
from processors.ports.runs import Grant
from processors.ports.streams import Record
from schemas.envelope import Envelope, encode_envelope
from schemas.errors import Unavailable
from tests.unit.gateway.catalogs import PROJECT

TOPIC = "events"
NOTHING = CatalogSnapshot(1, {}, {}, {}, {}, {}, {})


class Log:
    """Keeps the offsets of each part; `fails_at` is the place of the part that cannot be written."""

    def __init__(self, fails_at: int = -1) -> None:
        self.parts: list[list[int]] = []
        self.under_way = 0
        self.fails_at = fails_at

    def now(self) -> datetime:
        return datetime(2026, 7, 19, tzinfo=UTC)

    def followed(self, _topic: str) -> Mapping[int, Followed]:
        return {}

    def seal_key(self) -> bytes:
        return b"of these tests"

    async def commit(self, harvest: Harvest) -> Committed:
        self.under_way += 1
        assert self.under_way == 1, "two parts at once"
        await asyncio.sleep(0)
        self.under_way -= 1
        if len(self.parts) == self.fails_at:
            raise Unavailable("E_UNAVAILABLE", "away")
        self.parts.append([one.offset for one in harvest.arrivals])
        assert harvest.reached[0].next_offset == self.parts[-1][-1] + 1
        return Committed()


class Catalog:
    async def get(self) -> object:
        return NOTHING


class Hints:
    def granted(self, grants: Sequence[Grant]) -> None:
        """Nobody listens."""


def poll(records: int, size: int = 10) -> list[Record]:
    return [
        Record(TOPIC, 0, number, b"k", encode_envelope(event(number, size)), (), 1_784_500_000_000)
        for number in range(records)
    ]


def event(number: int, size: int) -> Envelope:
    return Envelope(
        id=f"order-{number}",
        type="nobody.listens",
        idempotency_key=f"k-{number}",
        partition_key="p",
        occurred_at="2026-07-19T14:00:00Z",
        data=f'"{"x" * size}"',
        project_id=PROJECT,
    )


def ingest_to(log: Log) -> Ingest:
    return Ingest(log, Catalog(), Hints())  # type: ignore[arg-type]


async def test_the_parts_of_a_poll_are_written_in_order_and_one_at_a_time() -> None:
    log = Log()
    await ingest_to(log)(poll(2 * MOST_RECORDS + 1))
    assert [len(part) for part in log.parts] == [MOST_RECORDS, MOST_RECORDS, 1]
    assert [offset for part in log.parts for offset in part] == list(range(2 * MOST_RECORDS + 1))


async def test_a_part_is_bounded_by_bytes() -> None:
    log = Log()
    await ingest_to(log)(poll(5, MOST_BYTES // 2))
    assert [len(part) for part in log.parts] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_nothing_is_written_behind_a_part_that_failed(failing: int) -> None:
    log = Log(failing)
    with pytest.raises(Unavailable):
        await ingest_to(log)(poll(2 * MOST_RECORDS + 1))
    assert len(log.parts) == failing
    assert log.under_way == 0
