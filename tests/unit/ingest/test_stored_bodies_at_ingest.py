"""Events whose data lies in storage: read where a trigger asks for them, waited for while the storage is away."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from processors.adapters.objects.storage import open_storage
from processors.ingest.ingest import Ingest
from processors.ingest.reading import AT_ONCE
from processors.ports.storage import Storage
from processors.ports.streams import Later, Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.errors import Unavailable
from schemas.stored_bodies import Reference, StoredBody, too_large_to_travel
from tests.conformance_of_ports.logs import MemoryLog
from tests.simulation.memory.tables import Queue, Tables
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

TOPIC = "events"
FILES = {
    "settle.yaml": """\
name: settle
version: 1
trigger: { event: order.paid }
steps:
  - { id: pay, uses: sql/execute, timeout: 5s, query: "select 1" }
"""
}


class Published:
    async def version(self) -> int:
        return 1

    async def snapshot(self) -> object:
        return snapshot_of(FILES)


class Silent:
    def granted(self, grants: object) -> None: ...


class Stage:
    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog()
        self.tables.queues[PROJECT, "q_default"] = Queue(100, ordered=False, max_attempts=5)
        self.folder = folder
        self.storage = open_storage(f"file://{folder}")
        self.read_from: object = self.storage

    @property
    def tables(self) -> Tables:
        return self.log.database.tables

    async def ingest(self, *values: bytes, storage: bool = True) -> None:
        if not storage:
            self.read_from = None
        await self.take([record(0, at, value) for at, value in enumerate(values)])

    async def take(self, records: Sequence[Record]) -> Mapping[int, Later]:
        log = await self.log.ingest_log()
        await log.positions(TOPIC, "topic-1", [0, 1])
        return await Ingest(log, CurrentCatalog(Published()), Silent(), None, self.read_from)(records)  # type: ignore[arg-type]

    @property
    def codes(self) -> list[str]:
        return [one.error_code for one in self.tables.dead_letters.values()]


def record(partition: int, offset: int, value: bytes) -> Record:
    return Record(TOPIC, partition, offset, b"p", value, (), 1_784_500_000_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bodies"


def large(letter: str = "x") -> StoredBody:
    made = too_large_to_travel(PROJECT, f'{{"n":"{letter * 300_000}"}}', datetime.now(UTC))
    assert made is not None
    return made


def event(body: StoredBody | None, **changes: object) -> bytes:
    plain = Envelope(
        id="1", type="order.paid", idempotency_key="k", partition_key="p", occurred_at="2026-07-19T14:02:11Z",
        data="{}", project_id=PROJECT,
    )  # fmt: skip
    carried = plain if body is None else referring(plain, body)
    return encode_envelope(msgspec.structs.replace(carried, **changes))


async def test_the_run_refers_to_its_input_and_the_reference_is_kept(folder: Path) -> None:
    stage = Stage(folder)
    await stage.storage.put(large())
    await stage.ingest(event(large()))
    (live,) = stage.tables.live.values()
    assert live.run.input_ref == str(large().reference)
    assert msgspec.json.decode(live.run.input)["data_size"] == len(large().content)
    assert stage.tables.stored_bodies == {str(large().reference)}


async def test_while_the_storage_is_away_a_partition_stands_at_the_record_that_needs_it_and_others_go_on(
    folder: Path,
) -> None:
    stage = Stage(folder)
    await stage.storage.put(large())
    shutil.move(folder, folder.with_name("away"))
    poll = [
        record(0, 0, event(None, id="0", idempotency_key="k0")),
        record(0, 1, event(large())),
        record(0, 2, event(None, id="2", idempotency_key="k2")),
        record(1, 7, event(None, id="3", idempotency_key="k3")),
    ]
    later = await stage.take(poll)
    assert {partition: one.offset for partition, one in later.items()} == {0: 1}
    assert later[0].seconds > 0
    assert {partition: one.next_offset for (_, partition), one in stage.tables.progress.items()} == {0: 1, 1: 8}
    assert {event_id for _, event_id in stage.tables.inbox} == {"0", "3"}
    shutil.move(folder.with_name("away"), folder)
    assert await stage.take(poll[1:3]) == {}
    assert len(stage.tables.live) == 4
    assert stage.codes == []


class Counting:
    """Storage that is slow or away, and counts who asks."""

    def __init__(self, inner: Storage, failures: int = 0) -> None:
        self._inner = inner
        self._failures = failures
        self.asked = self.now = self.most = 0

    async def get(self, reference: Reference) -> bytes:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(3):
            await asyncio.sleep(0)
        self.now -= 1
        if self.asked <= self._failures:
            raise Unavailable("E_STORAGE_UNAVAILABLE", "away")
        return await self._inner.get(reference)


async def test_the_bodies_of_a_poll_are_read_several_at_a_time_and_never_more_than_may_be_held(folder: Path) -> None:
    stage = Stage(folder)
    await stage.storage.put(large())
    stage.read_from = slow = Counting(stage.storage)
    await stage.ingest(*(event(large(), id=str(n), idempotency_key=str(n)) for n in range(3 * AT_ONCE)))
    assert len(stage.tables.live) == 3 * AT_ONCE
    assert slow.most == AT_ONCE


async def test_a_storage_that_is_away_is_not_asked_for_every_record_of_a_poll(folder: Path) -> None:
    stage = Stage(folder)
    stage.read_from = away = Counting(stage.storage, failures=10_000)
    await stage.ingest(*(event(large(), id=str(n), idempotency_key=str(n)) for n in range(10 * AT_ONCE)))
    assert away.asked == AT_ONCE
    assert stage.tables.live == {}


async def test_data_that_is_not_there_is_a_dead_letter_and_its_neighbours_are_taken(folder: Path) -> None:
    stage = Stage(folder)
    (folder / "20260718").mkdir()  # what holds nothing at all is away
    await stage.ingest(event(large()), event(None, id="2", idempotency_key="k2"))
    assert stage.codes == ["E_STORED_BODY_MISSING"]
    assert len(stage.tables.live) == 1


@pytest.mark.parametrize("is_set", [True, False])
async def test_what_is_put_back_can_be_redriven_since_its_letter_is_its_triggers(folder: Path, is_set: bool) -> None:
    stage = Stage(folder)
    await stage.storage.put(large("other"))
    await stage.ingest(event(large()), storage=is_set)
    (letter,) = stage.tables.dead_letters.values()
    assert letter.trigger_id is not None
    assert letter.workflow_id is not None
    assert letter.envelope is not None


async def test_an_event_that_nobody_asks_for_is_not_read(folder: Path) -> None:
    stage = Stage(folder)
    await stage.ingest(event(large(), type="nobody.listens"))
    assert (stage.codes, len(stage.tables.live), len(stage.tables.inbox)) == ([], 0, 1)


async def test_without_storage_an_event_that_refers_to_it_is_a_dead_letter(folder: Path) -> None:
    stage = Stage(folder)
    await stage.ingest(event(large()), storage=False)
    assert stage.codes == ["E_STORED_BODY_MISSING"]


async def test_b09_a_reference_into_another_project_is_a_dead_letter(folder: Path) -> None:
    stage = Stage(folder)
    foreign = msgspec.structs.replace(large(), reference=msgspec.structs.replace(large().reference, project_id="other"))
    await stage.storage.put(foreign)
    await stage.ingest(event(foreign))
    assert stage.codes == ["E_ENVELOPE_INVALID"]


async def test_what_somebody_else_put_there_is_read_as_strictly_as_what_travels(folder: Path) -> None:
    stage = Stage(folder)
    for content in (b'{"a":1,"a":2}' + b" " * 300_000, b"\xff" * 300_000):
        body = too_large_to_travel(PROJECT, content.decode("latin-1"), datetime.now(UTC))
        assert body is not None
        await stage.storage.put(body)
        await stage.ingest(event(body, id=content.hex()[:8], idempotency_key=content.hex()[:8]))
    assert stage.codes == ["E_DUPLICATE_KEY", "E_JSON_INVALID"]


# how large what a producer writes may be

INLINE, MOST = 262_144, 1_000_000


def text(size: int) -> str:
    return '"' + "x" * (size - 2) + '"'


async def test_a20_what_a_producer_writes_whole_is_taken_whole_on_both_sides_of_256_kb(folder: Path) -> None:
    stage = Stage(folder)
    for size in (INLINE, INLINE + 1):
        await stage.ingest(event(None, id=f"{size}", idempotency_key=f"{size}", data=text(size)))
    told = [(len(live.run.input), live.run.input_ref) for live in stage.tables.live.values()]
    assert told == [(INLINE, None), (INLINE + 1, None)]


@pytest.mark.parametrize("way", ["whole", "by reference"])
async def test_a20_a_producer_may_send_a_megabyte_and_not_a_byte_more(folder: Path, way: str) -> None:
    stage, raws = Stage(folder), []
    for size in (MOST, MOST + 1):
        body = None
        if way == "by reference":
            body = too_large_to_travel(PROJECT, text(size), datetime.now(UTC))
            assert body is not None
            await stage.storage.put(body)
        data = text(size) if body is None else "null"
        raws.append(event(body, id=f"{size}", idempotency_key=f"{size}", data=data))
        await stage.ingest(raws[-1])
    assert [live.run.event_id for live in stage.tables.live.values()] == [f"{MOST}"]
    (letter,) = stage.tables.dead_letters.values()
    assert (letter.error_code, letter.project_id, letter.raw) == ("E_BODY_TOO_LARGE", PROJECT, raws[1])
    assert "1000001 bytes" in letter.summary
