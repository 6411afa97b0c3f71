"""Publishes the outbox to Kafka: in order of commit, no row skipped, every row numbered in its partition.

Steps of a round; a crash between any two publishes the same rows with the same numbers again:
1. hold the shard (lease with epoch); 2. look in order: upper bound, horizon, rows; 3. give each row its
partition and the next number there; 4. publish and await all reports; 5. keep cursor and numbers.
A topic that was made again has lost its records: the cursor goes back, and consumers absorb the repetitions.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
import structlog

from processors.adapters.kafka.partitioner import murmur2
from processors.ports.relay import Cursor, Hold, OutboxRow, RelayStore
from processors.ports.streams import Admin, Delivery, Outgoing, Producer
from schemas.errors import Broken, Unavailable
from topology.topics import TopicSpec

_log = structlog.get_logger("relay")

BATCH: Final = 1_000
POLL_SECONDS: Final = 2.0
SEQ_HEADER: Final = "a44-seq"
SHARD_HEADER: Final = "a44-shard"
_SHORT_SECONDS: Final = 0.005
_FRESH_SECONDS: Final = 30.0

_headers = msgspec.json.Decoder(dict[str, str])
_hash = lru_cache(maxsize=65_536)(murmur2)


async def run_relay(
    store: RelayStore,
    producer: Producer,
    admin: Admin,
    owner: str,
    stop: asyncio.Event,
    *,
    specs: Sequence[TopicSpec] = (),
    shard: int = 0,
) -> None:
    """Relay, or stand by for the owner, until `stop` is set; then give the lease back.

    `owner` names this process and no other. Topics of `specs` are made when a row needs one that is missing.
    """
    relay = _Relay(store, producer, _Partitions(admin, specs), owner, shard)
    failures = 0
    while not stop.is_set():
        try:
            pause, wakes = await relay.round()
            failures = 0
        except Unavailable as exc:
            relay.lose_sight()
            failures += 1
            pause, wakes = min(0.05 * 2 ** min(failures, 6), POLL_SECONDS), False
            _log.warning("relay_waits", seconds=pause, reason=exc.message)
        if pause > 0:
            await _wait(pause, stop, store if wakes else None)
    await relay.release()


class _Partitions:
    """How many partitions each topic has, and whether it still is the topic that it was; asked again now and then
    and after each failure.
    """

    def __init__(self, admin: Admin, specs: Sequence[TopicSpec]) -> None:
        self._admin = admin
        self._specs = {spec.name: spec for spec in specs}
        self._counts: dict[str, int] = {}
        self._ids: dict[str, set[str]] = {}
        self._made_again: set[str] = set()
        self._asked_at = -_FRESH_SECONDS

    def expect(self, ids: Mapping[str, set[str]]) -> None:
        """The ids under which topics were read so far; what was seen here itself counts more."""
        self._ids = {**ids, **self._ids}

    async def made_again(self) -> set[str]:
        """Topics that are not the ones they were, told once: the broker has lost what was in them."""
        if self._is_stale():
            await self._ask(set())
        told, self._made_again = self._made_again, set()
        return told

    async def ensure(self, topics: set[str]) -> dict[str, int]:
        """Counts of at least these topics. Raises Unavailable while one does not exist."""
        if not topics <= self._counts.keys():
            await self._ask(topics)
        return self._counts

    def forget(self) -> None:
        self._counts = {}

    def _is_stale(self) -> bool:
        return not self._counts or time.monotonic() - self._asked_at > _FRESH_SECONDS

    async def _ask(self, topics: set[str]) -> None:
        wanted = sorted(topics | self._counts.keys() | self._specs.keys())
        counts = await self._admin.partition_counts(wanted)
        makeable = [self._specs[name] for name in wanted if name not in counts and name in self._specs]
        if makeable:
            await self._admin.ensure_topics(makeable)
            counts = await self._admin.partition_counts(wanted)
        for name, topic_id in (await self._admin.topic_ids(wanted)).items():
            if topic_id not in self._ids.get(name, {topic_id}):
                self._made_again.add(name)
            self._ids[name] = {topic_id}
        missing = sorted(topics - counts.keys())
        if missing:
            raise Unavailable("E_UNAVAILABLE", f"the topic {missing[0]} does not exist")
        self._counts = counts
        self._asked_at = time.monotonic()


class _Relay:
    def __init__(self, store: RelayStore, producer: Producer, partitions: _Partitions, owner: str, shard: int) -> None:
        self._store = store
        self._producer = producer
        self._partitions = partitions
        self._owner = owner
        self._shard_header = (SHARD_HEADER, str(shard).encode())
        self._epoch: int | None = None
        self._cursor = Cursor(0, 0)
        self._numbers: dict[tuple[str, int], int] = {}
        self._renew_at = 0.0
        self._short = _SHORT_SECONDS

    async def round(self) -> tuple[float, bool]:
        """One round; answers how long to pause, and whether a wake may end the pause."""
        upper = await self._hold()
        if self._epoch is None or upper is None:
            return POLL_SECONDS, False
        lost = await self._partitions.made_again() & {topic for topic, _ in self._numbers}
        if lost:
            await self._go_back(lost)
            return 0.0, False
        horizon = await self._store.horizon(upper)
        rows = await self._store.rows(self._cursor, horizon, BATCH)
        if rows:
            await self._publish(rows)
            self._short = _SHORT_SECONDS
            return 0.0, False
        if horizon == upper:
            return POLL_SECONDS, True
        # Rows may wait behind an open transaction, whose end nobody announces: look again, ever slower.
        self._short = min(self._short * 2, POLL_SECONDS)
        return self._short, True

    def lose_sight(self) -> None:
        """It is not known what was kept or delivered: take the shard and read everything again."""
        self._epoch = None
        self._partitions.forget()

    async def _go_back(self, topics: set[str]) -> None:
        """Everything goes out again before anything new does, so that lanes keep their order."""
        _log.error("relay_goes_back", reason="the broker has lost these topics' records", topics=sorted(topics))
        await self._store.rewind()
        self._epoch = None

    async def release(self) -> None:
        if self._epoch is None:
            return
        try:
            await self._store.release(self._epoch)
        except Unavailable as exc:
            _log.info("relay_lease_left", reason=exc.message)

    async def _hold(self) -> int | None:
        """The upper bound when the shard is ours; on the way the lease is renewed where it is time."""
        if self._epoch is not None and time.monotonic() < self._renew_at:
            return await self._store.upper()
        asked_at = time.monotonic()
        hold = await (self._store.take(self._owner) if self._epoch is None else self._store.renew(self._epoch))
        if hold is None:
            if self._epoch is not None:
                _log.warning("relay_superseded", owner=self._owner)
            self._epoch = None
            return None
        if hold.epoch != self._epoch:
            await self._begin(hold)
        self._lease_began(asked_at)
        return hold.upper

    async def _begin(self, hold: Hold) -> None:
        self._numbers = await self._store.numbers()
        self._partitions.expect(await self._store.topic_ids())
        self._epoch, self._cursor = hold.epoch, hold.cursor
        _log.info("relay_begins", owner=self._owner, epoch=hold.epoch, cursor=tuple(hold.cursor))

    def _lease_began(self, at: float) -> None:
        self._renew_at = at + self._store.lease / 3

    async def _publish(self, rows: Sequence[OutboxRow]) -> None:
        numbers: dict[tuple[str, int], int] = {}
        counts = await self._partitions.ensure({row.topic for row in rows})
        batch = [self._outgoing(row, counts[row.topic], numbers) for row in rows]
        for answer in await self._producer.send(batch):
            if not isinstance(answer, Delivery):
                raise answer
        if self._epoch is None:
            raise Broken("E_INTERNAL", "rows were published without a lease")
        cursor = Cursor(rows[-1].xid, rows[-1].id)
        asked_at = time.monotonic()
        if not await self._store.advance(self._epoch, cursor, numbers):
            _log.warning("relay_superseded", owner=self._owner, reason="while it published; its rows come again")
            self._epoch = None
            return
        self._cursor = cursor
        self._numbers.update(numbers)
        self._lease_began(asked_at)

    def _outgoing(self, row: OutboxRow, partitions: int, numbers: dict[tuple[str, int], int]) -> Outgoing:
        key = row.partition_key.encode()
        place = (row.topic, (_hash(key) & 0x7FFFFFFF) % partitions)
        number = numbers.get(place, self._numbers.get(place, 0)) + 1
        numbers[place] = number
        own: tuple[tuple[str, bytes], ...] = ((SEQ_HEADER, b"%d" % number), self._shard_header)
        if row.headers is not None:
            own += tuple((name, text.encode()) for name, text in _headers.decode(row.headers).items())
        return Outgoing(row.topic, key, row.value, own, place[1])


async def _wait(seconds: float, stop: asyncio.Event, store: RelayStore | None) -> None:
    """Until the time is over, `stop` is set or the store wakes."""
    ways: list[Coroutine[Any, Any, Any]] = [stop.wait()]
    if store is not None:
        ways.append(store.wait_for_wake())
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
