"""Publishes the outbox to Kafka: in order of commit, no row skipped, every row numbered in its partition.

Steps of a round; a crash between any two publishes the same rows with the same numbers again:
1. hold the shard (lease with epoch); 2. look in order: upper bound, horizon, rows; 3. give each row its
partition and the next number there; 4. publish and await all reports; 5. keep cursor and numbers.
Where ingest misses numbers, the end of a partition is gone or a topic was made again, the cursor goes back;
consumers absorb the repetitions.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from processors.ports import crash_points
from processors.ports.measures import Measures
from processors.ports.relay import BATCH, Cursor, DeadRow, Hold, OutboxRow, Outlook, Progress, RelayStore
from processors.ports.streams import Admin, Delivery, Producer
from processors.relay.lost_tails import LostTails
from processors.relay.numbering import Numbering
from processors.relay.topics_in_use import TopicsInUse
from schemas.errors import Refused, Unavailable
from schemas.ids import dead_letter_id
from topology.topics import TopicSpec

_log = structlog.get_logger("relay")

POLL_SECONDS: Final = 2.0
_SHORT_SECONDS: Final = 0.005
_UNREAD_SECONDS: Final = 0.2
_GAUGES: Final = dict(
    zip(Outlook._fields, ("outbox_horizon_age_seconds", "outbox_lag_rows", "outbox_oldest_unsent_seconds"), strict=True)
)


async def run_relay(
    store: RelayStore,
    producer: Producer,
    admin: Admin,
    owner: str,
    stop: asyncio.Event,
    *,
    specs: Sequence[TopicSpec] = (),
    shard: int = 0,
    measures: Measures | None = None,
) -> None:
    """Relay, or stand by for the owner, until `stop` is set; then give the lease back.

    `owner` names this process and no other. Topics of `specs` are made when a row needs one that is missing.
    A batch is handed to `producer` in the first third of a lease only. It is to answer within half a lease, so that
    nothing is under way any more in the last sixth, which is left for clocks and threads that are late.
    """
    told = measures or Measures()
    relay = _Relay(store, producer, TopicsInUse(admin, specs), LostTails(store, admin), owner, shard, told)
    failures, has_polled = 0, False
    while not stop.is_set():
        try:
            pause, wakes = await relay.round(is_poll=has_polled)
            failures = 0
            if has_polled and pause == 0:  # rows that nobody had told of
                told.count("wakeups_total", 1, "poll")
        except Unavailable as exc:
            relay.lose_sight()
            failures += 1
            pause, wakes = min(0.05 * 2 ** min(failures, 6), POLL_SECONDS), False
            _log.warning("relay_waits", seconds=pause, reason=exc.message)
        has_polled = False
        if pause > 0:
            is_woken = await _wait(pause, stop, store if wakes else None)
            has_polled = wakes and pause == POLL_SECONDS and not is_woken
    await relay.release()


class _Relay:
    def __init__(
        self,
        store: RelayStore,
        producer: Producer,
        topics: TopicsInUse,
        tails: LostTails,
        owner: str,
        shard: int,
        measures: Measures,
    ) -> None:
        self._store = store
        self._producer = producer
        self._topics = topics
        self._tails = tails
        self._owner = owner
        self._measures = measures
        self._numbering = Numbering(shard)
        self._epoch: int | None = None
        self._leads = False  # as far as it knows: also while it has lost sight, until the shard is another's
        self._cursor = Cursor(0, 0)
        self._asked: frozenset[str] = frozenset()
        self._held: frozenset[str] = frozenset()
        self._refused: dict[int, DeadRow] = {}
        self._unread: list[str] = []
        self._look_at = 0.0
        self._publish_until = 0.0
        self._short = _SHORT_SECONDS

    async def round(self, *, is_poll: bool) -> tuple[float, bool]:
        """One round; answers how long to pause, and whether a wake may end the pause. A poll, which nothing called for,
        asks first whether there is anything to look at in order.
        """
        await self._hold()
        if self._epoch is None:
            return POLL_SECONDS, False
        lost = await self._topics.lost()
        self._asked |= await self._tails.topics()
        if lost or self._asked:
            await self._go_back(self._epoch, lost)
            return 0.0, False
        if is_poll and not await self._store.waits(self._cursor):
            return POLL_SECONDS, True
        upper = await self._store.upper()
        horizon = await self._store.horizon(upper)
        rows = await self._store.rows(self._cursor, horizon, BATCH)
        if rows:
            self._short = _SHORT_SECONDS
            return await self._publish(self._epoch, rows), False
        if horizon == upper:
            return POLL_SECONDS, True
        # Rows may wait behind an open transaction, whose end nobody announces: look again, ever slower.
        self._short = min(self._short * 2, POLL_SECONDS)
        return self._short, True

    def lose_sight(self) -> None:
        """It is not known what was kept or delivered: take the shard and read everything again."""
        self._epoch = None
        self._topics.forget()

    async def release(self) -> None:
        if self._epoch is None:
            return
        try:
            await self._store.release(self._epoch)
        except Unavailable as exc:
            _log.info("relay_lease_left", reason=exc.message)
        self._stand_by()

    def _stand_by(self) -> None:
        self._epoch, self._leads = None, False
        for gauge in _GAUGES.values():
            self._measures.forget(gauge)  # the owner tells them

    # -- the lease

    async def _hold(self) -> None:
        """Take the shard, or renew its lease where it is time; without an epoch it is another's."""
        if self._epoch is not None and time.monotonic() < min(self._look_at, self._publish_until):
            return
        asked_at = time.monotonic()
        hold = await (self._store.take(self._owner) if self._epoch is None else self._store.renew(self._epoch))
        if hold is None:
            if self._leads:
                _log.warning("relay_superseded", owner=self._owner)
            self._stand_by()
            return
        if hold.epoch != self._epoch:
            await self._begin(hold)
        self._look_at = self._publish_until = asked_at + self._store.lease / 3
        self._hear(hold)

    async def _begin(self, hold: Hold) -> None:
        self._numbering.begin(await self._store.numbers(), await self._store.seal_key())
        self._topics.expect(await self._store.topics())
        self._epoch, self._cursor, self._leads = hold.epoch, hold.cursor, True
        self._refused.clear()  # perhaps buried meanwhile, by another relay or by us without an answer
        self._measures.count("relay_takeovers_total")
        _log.info("relay_begins", owner=self._owner, epoch=hold.epoch, cursor=tuple(hold.cursor))

    def _hear(self, hold: Hold) -> None:
        self._asked, self._held = hold.asked, hold.held
        if hold.asked:
            self._topics.forget()  # what is missing may have been lost with its topic, and others with it
        for name, value in zip(_GAUGES.values(), hold.outlook, strict=True):
            self._measures.set(name, value)

    # -- going back

    async def _go_back(self, epoch: int, lost: set[str]) -> None:
        """What is missing goes out again before anything new does, so that lanes keep their order."""
        _log.error("relay_goes_back", topics_made_again=sorted(lost), topics_with_gaps=sorted(self._asked))
        if await self._store.go_back(epoch, lost | self._asked):
            self._topics.use_anew(lost)
            self._measures.count("relay_rewinds_total")
        self._epoch = None

    # -- publishing

    async def _publish(self, epoch: int, rows: Sequence[OutboxRow]) -> float:
        """Answers how long to pause."""
        names = {row.topic for row in rows}
        await self._topics.find(names)
        if lost := self._topics.found_lost():  # a broker that comes back may tell of its topics one by one
            await self._go_back(epoch, lost)
            return 0.0
        unread = [name for name in self._topics.grown(names) if not await self._store.is_read_up(name)]
        if unread or names & self._held:
            self._waits_for_ingest(unread or sorted(names & self._held))
            return _UNREAD_SECONDS
        self._unread = []
        self._topics.use(names)
        sendable = [row for row in rows if row.id not in self._refused]
        await self._producer.ready(names)
        self._numbering.begin_batch()
        batch = [self._numbering.outgoing(row, self._topics.partitions(row.topic)) for row in sendable]
        if time.monotonic() >= self._publish_until:
            return 0.0  # it took long to come here: another relay could begin while this batch is under way
        crash_points.reach("after_read_before_publish")
        if self._is_taken(sendable, await self._producer.send(batch)):
            crash_points.reach("after_publish_before_mark")
            await self._keep(epoch, Cursor(rows[-1].xid, rows[-1].id))
            self._measures.count("relay_published_total", len(sendable))
        return 0.0

    def _waits_for_ingest(self, topics: list[str]) -> None:
        if topics != self._unread:
            self._unread = topics
            _log.warning("relay_waits", reason="ingest has to read up before new partitions are used", topics=topics)

    def _is_taken(self, rows: Sequence[OutboxRow], answers: Sequence[Delivery | Unavailable | Refused]) -> bool:
        """Whether the whole batch was delivered. Rows that the broker will never take are left out next time."""
        refused = [(row, answer) for row, answer in zip(rows, answers, strict=True) if isinstance(answer, Refused)]
        for row, why in refused:
            letter = dead_letter_id(int(time.time() * 1000))
            self._refused[row.id] = DeadRow(row, letter, why.code, why.message)
        away = next((answer for answer in answers if isinstance(answer, Unavailable)), None)
        if away is not None and not refused:
            raise away
        return not refused

    async def _keep(self, epoch: int, cursor: Cursor) -> None:
        dead = tuple(self._refused.values())
        asked_at = time.monotonic()
        progress = Progress(cursor, self._numbering.of_batch, self._topics.unkept(), dead)
        if not await self._store.advance(epoch, progress):
            _log.warning("relay_superseded", owner=self._owner, reason="while it published; its rows come again")
            self._stand_by()
            return
        self._cursor = cursor
        self._numbering.keep_batch()
        self._topics.kept()
        self._publish_until = asked_at + self._store.lease / 3
        for one in dead:
            _log.error("dead_letter", id=one.dead_letter_id, code=one.error_code, reason=one.summary)
        self._refused.clear()


async def _wait(seconds: float, stop: asyncio.Event, store: RelayStore | None) -> bool:
    """Until the time is over, `stop` is set or the store wakes; says whether anything came before the time was over."""
    ways: list[Coroutine[Any, Any, Any]] = [stop.wait()]
    if store is not None:
        ways.append(store.wait_for_wake())
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
