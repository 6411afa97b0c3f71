"""Two relays, one shard: one publishes, the other takes over, and the one before does no harm when it comes back."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
import structlog

from ops.local.role_process import RoleProcess
from processors.ports.relay import Cursor, OutboxRow, RelayStore
from processors.ports.streams import Delivery, Outgoing
from schemas.errors import Refused, Unavailable
from tests.integration.relay.conftest import PARTITIONS, Outbox, Published, Stage, Wrapped
from tests.support.waiting import until

KEYS = 10
OWNER = "select owner = %s from automation.relay_shards"
ANOTHERS = (
    "update automation.relay_shards set owner = 'second', epoch = epoch + 1,"
    " lease_until = clock_timestamp() + interval '60 s'"
)
TAKEOVER_SECONDS = 40.0  # the lease of 6 s and a poll, on a machine that is busy


class Pair:
    """Two relays as processes, with a writer that does not stop."""

    def __init__(self, stage: Stage, outbox: Outbox, first: RoleProcess, second: RoleProcess) -> None:
        self.stage, self.outbox, self.first, self.second = stage, outbox, first, second
        self.count = 0
        self._stop = asyncio.Event()

    async def write_on(self) -> None:
        """Stopped between two rows: a row whose insert is cancelled may be there all the same, and not be counted."""
        while not self._stop.is_set():
            await self.outbox.put(f"v{self.count}", key=f"key-{self.count % KEYS}")
            self.count += 1
            await asyncio.sleep(0.005)

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        writing = asyncio.create_task(self.write_on())
        try:
            yield
        finally:
            self._stop.set()
            await writing

    async def until_owned_by(self, process: RoleProcess) -> float:
        async with self.stage.writer() as looking:
            began = time.monotonic()
            await until(lambda: looking.value(OWNER, process.name), f"{process.name} owns the shard", TAKEOVER_SECONDS)
            return time.monotonic() - began

    async def until_moved(self) -> None:
        """Return once the cursor has moved twice more."""
        async with self.stage.writer() as looking:
            seen: set[int] = set()

            async def moved() -> bool:
                seen.add(await looking.value("select cursor_id from automation.relay_shards"))
                return len(seen) > 2

            await until(moved, "the cursor moves", TAKEOVER_SECONDS)


@pytest_asyncio.fixture
async def pair(stage: Stage, tmp_path: Path, topic_prefix: str) -> AsyncIterator[Pair]:
    prefix = topic_prefix.rstrip(".")
    stage.topic = f"{prefix}.events.v1"
    environment = {
        "A44_POSTGRES_DSN": stage.dsn,
        "A44_KAFKA_BOOTSTRAP": stage.bootstrap,
        "A44_TOPIC_PREFIX": prefix,
        "A44_PARTITIONS": str(PARTITIONS),
    }
    async with AsyncExitStack() as resources:
        outbox = await resources.enter_async_context(stage.writer())
        processes = []
        for name in ("first", "second"):
            own = {**environment, "A44_OWNER": name}
            process = RoleProcess("relay", own, tmp_path / f"{name}.log", name)
            resources.push_async_callback(process.stop)
            await process.start()
            processes.append(process)
            await until(
                lambda: outbox.value("select owner is not null from automation.relay_shards"), "somebody owns it"
            )
        yield Pair(stage, outbox, *processes)


def check_order(records: Sequence[Published], values: int) -> None:
    """Numbers are new in order, a number is one row, rows of a key are new in the order of their commits."""
    rows: dict[tuple[int, int], str] = {}
    last: dict[int, int] = {}
    for record in records:
        place = (record.partition, record.seq)
        if place not in rows:
            assert record.seq == last.get(record.partition, 0) + 1
            last[record.partition] = record.seq
        assert rows.setdefault(place, record.value) == record.value
    assert len(rows) == values
    by_key: dict[int, list[int]] = {}
    for value in rows.values():
        by_key.setdefault(int(value[1:]) % KEYS, []).append(int(value[1:]))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.timeout(240)
async def test_e04_a_standby_takes_over_when_the_owner_is_killed(pair: Pair) -> None:
    async with pair.load():
        await pair.until_moved()
        await pair.first.kill()
        seconds = await pair.until_owned_by(pair.second)
        await pair.until_moved()
    print(f"the standby owned the shard {seconds:.1f} s after the kill")  # noqa: T201
    await pair.outbox.put(f"v{pair.count}", key=f"key-{pair.count % KEYS}")
    check_order(await pair.stage.until_published(f"v{pair.count}", seconds=60), pair.count + 1)


@pytest.mark.timeout(240)
async def test_e04_an_owner_that_stood_still_past_its_lease_moves_nothing_when_it_goes_on(pair: Pair) -> None:
    async with pair.load():
        await pair.until_moved()
        pair.first.pause()
        seconds = await pair.until_owned_by(pair.second)
        await pair.until_moved()
        epoch = await pair.outbox.value("select epoch from automation.relay_shards")
        pair.first.go_on()
        await until(lambda: has_said(pair.first, "relay_superseded"), "the first one notices", TAKEOVER_SECONDS)
        await pair.until_moved()
    print(f"the standby owned the shard {seconds:.1f} s after the pause")  # noqa: T201
    assert await pair.outbox.value("select epoch from automation.relay_shards") == epoch
    await pair.outbox.put(f"v{pair.count}", key=f"key-{pair.count % KEYS}")
    check_order(await pair.stage.until_published(f"v{pair.count}", seconds=60), pair.count + 1)


class Counts(Wrapped):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        self.sent += [record.value for record in batch]
        return await super().send(batch)


class LosesSight(Wrapped):
    """What it is given never arrives, and it says so only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        self.was_asked.set()
        await self.go_on.wait()
        return [Unavailable("E_KAFKA_UNAVAILABLE", "timed out") for _ in batch]


class SlowReading:
    """The real store, whose rows come only when the test lets them."""

    def __init__(self) -> None:
        self.has_read, self.go_on = asyncio.Event(), asyncio.Event()
        self.real: RelayStore | None = None

    def wrap(self, real: RelayStore) -> RelayStore:
        self.real = real
        return cast("RelayStore", self)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    async def rows(self, cursor: Cursor, horizon: int, limit: int) -> list[OutboxRow]:
        assert self.real is not None
        rows = await self.real.rows(cursor, horizon, limit)
        if rows:
            self.has_read.set()
            await self.go_on.wait()
        return rows


async def test_a_relay_that_could_not_renew_hands_nothing_over(stage: Stage) -> None:
    """Its rows arrive late: by its own clock the lease may be over before they would be delivered."""
    counts, slow = Counts(), SlowReading()
    async with stage.writer() as outbox, stage.relay("first", counts.wrap, slow.wrap):
        await outbox.put("late")
        await asyncio.wait_for(slow.has_read.wait(), 30)
        over = "select lease_until < clock_timestamp() from automation.relay_shards"
        await until(lambda: outbox.value(over), "the lease is over")
        await outbox.conn.execute(ANOTHERS)
        slow.go_on.set()
        await until(lambda: looks_for_the_shard(outbox), "it stands by")
        assert counts.sent == []


async def test_an_owner_that_lost_sight_says_that_the_shard_is_anothers(stage: Stage) -> None:
    """Stood still while its records timed out: it asks for the shard anew, and hears that somebody else has it."""
    loses = LosesSight()
    with structlog.testing.capture_logs() as said:
        async with stage.writer() as outbox, stage.relay("first", loses.wrap):
            await outbox.put("lost")
            await asyncio.wait_for(loses.was_asked.wait(), 30)
            await outbox.conn.execute(ANOTHERS)
            loses.go_on.set()
            await until(lambda: "relay_superseded" in [line["event"] for line in said], "it says so")


async def looks_for_the_shard(outbox: Outbox) -> bool:
    return bool(
        await outbox.value(
            "select exists (select from pg_stat_activity where application_name = 'a44-relay'"
            " and datname = current_database() and state = 'idle' and query like '%%set owner%%')"
        )
    )


def has_said(process: RoleProcess, event: str) -> bool:
    return any(line.get("event") == event for line in process.lines())
