"""Consumer life by faust: group membership, rebalances, the fetching thread; nothing else of faust.

Started without its worker program, so no web server, no signal handlers, no logging set-up and no
redirected stdout. Its aiokafka consumer hands over whole polls (record by record is twenty times
slower), seeks where its reader says at each assignment, and commits by itself, for lag tools only.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import faust
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, KafkaError
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from yarl import URL

from processors.adapters.kafka.consumer_thread import LONGEST_POLL_MS, ConsumerThread
from processors.ports.streams import Later, Record

_log = structlog.get_logger("kafka.consumer")

FETCH_WAIT: Final = 0.01
IDLE_FETCH_WAIT: Final = 0.4
_POLL_SECONDS: Final = 1.0
_COMMIT_SECONDS: Final = 3.0
_HANDOVER_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 6.0
_REQUEST_SECONDS: Final = 30.0  # more than any rebalance takes; a connection that died silently is found by it


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How to read one topic in one group. Times in seconds.

    `fetch_wait` is how long the broker may hold a fetch while records come; it is short because the embedded one sleeps
    about half of it even when a record arrives. Where none came for a second, it may hold one for `idle_fetch_wait`.
    A partition that stands still for `stall_seconds`, although there is something to read, makes a new life begin; so
    does a group that shares out no partitions for `join_seconds`, which is more than a rebalance may take.
    """

    bootstrap: str
    group: str
    topic: str
    client_id: str
    fetch_wait: float = FETCH_WAIT
    idle_fetch_wait: float = IDLE_FETCH_WAIT
    session_timeout: float = 6.0
    metadata_max_age: float = 3.0
    max_records: int = 5_000
    stall_seconds: float = 30.0
    join_seconds: float = 20.0


class Reader(Protocol):
    """What the worker asks of the side that handles records. `abandon` is set when a rebalance or the end comes."""

    async def locate(self, partitions: Sequence[int], abandon: asyncio.Event) -> Mapping[int, int] | None:
        """Start offsets; an empty mapping where the group's commits decide; None: abandoned."""

    async def take(self, records: Sequence[Record], abandon: asyncio.Event) -> Mapping[int, Later] | None:
        """Handle a poll; answer, once it is durable, which partitions go on later. None: abandoned, the records will
        come again.
        """

    def assigned(self, partitions: frozenset[int]) -> None: ...

    def revoked(self, partitions: frozenset[int]) -> None: ...


class _Consumer(driver.Consumer):  # type: ignore[misc]
    """The driver's consumer with whole polls instead of single messages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reader: Reader = self.app.reader
        self._durable: dict[Any, int] = {}
        self._told_kafka: dict[Any, int] = {}
        self._seek_wanted = 0
        self._seek_done = 0
        self._resume_at: dict[TP, float] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Only ask for it: the drain seeks before it polls, since Postgres may be away for longer than faust waits."""
        self._seek_wanted += 1

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Let the batch in hand become durable, tell Kafka how far it went, then let go."""
        self.stop_flow()
        with suppress(TimeoutError):  # the next owner reads it again then; handlers stand that
            async with asyncio.timeout(_HANDOVER_SECONDS):
                await self._idle.wait()
        await self.commit()
        for tp in revoked:
            self._durable.pop(tp, None)
            self._told_kafka.pop(tp, None)
            self._resume_at.pop(tp, None)
        if revoked:
            self.reader.revoked(frozenset(tp.partition for tp in revoked))
        await super().on_partitions_revoked(revoked)

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                if not self.flow_active:
                    await self.wait(self.can_resume_flow)
                    continue
                generation = self.app.consumer_generation_id
                if self._seek_done != self._seek_wanted and not await self._seek_all():
                    await asyncio.sleep(0)
                    continue
                polled, _ = await self._wait_next_records(timeout=self._resume_due())
                self._thread.hold_fetches(is_idle=not polled)
                # A poll from before a rebalance is not ours any more; what replaces it was sought anew.
                if polled and self.flow_active and generation == self.app.consumer_generation_id:
                    await self._hand_over(polled)
                else:
                    await asyncio.sleep(0)
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _hand_over(self, polled: Mapping[Any, Sequence[Record]]) -> None:
        if self._seek_done != self._seek_wanted:
            return
        records = [record for part in polled.values() for record in part]
        self._idle.clear()
        try:
            later = await self.reader.take(records, self.suspend_flow)
        finally:
            self._idle.set()
        if later is None or self._seek_done != self._seek_wanted:
            return
        for tp, part in polled.items():
            self._durable[tp] = later[tp.partition].offset if tp.partition in later else part[-1].offset + 1
            self._read_offset[tp] = self._durable[tp] - 1
        if later:
            await self._leave_alone({TP(*tp): later[tp.partition] for tp in polled if tp.partition in later})

    async def _leave_alone(self, later: Mapping[TP, Later]) -> None:
        """Go back in these partitions, and read no more of them for a while."""
        try:
            await self.seek_wait({TopicPartition(*tp): one.offset for tp, one in later.items()})
        except (IllegalStateError, KafkaError) as exc:  # rebalanced meanwhile, or the broker went away
            _log.info("seek_repeated", reason=repr(exc))
            self._seek_wanted += 1
            return
        self.pause_partitions(later)
        self._resume_at.update((tp, time.monotonic() + one.seconds) for tp, one in later.items())

    def _resume_due(self) -> float:
        """Read again what was left alone for long enough; answer for how long a poll may wait."""
        now = time.monotonic()
        due = [tp for tp, at in self._resume_at.items() if at <= now]
        if due:
            self._resume(due)
        return min([_POLL_SECONDS, *(at - now for at in self._resume_at.values())])

    def _resume(self, tps: Sequence[TP]) -> None:
        self.resume_partitions(tps)
        for tp in tps:
            del self._resume_at[tp]

    def paused(self) -> frozenset[int]:
        """Partitions that are left alone, as they were asked to be."""
        return frozenset(tp.partition for tp in self._resume_at)

    async def _seek_all(self) -> bool:
        wanted = self._seek_wanted
        tps = {tp.partition: tp for tp in self.assignment()}
        found = await self.reader.locate(sorted(tps), self.suspend_flow)
        if found is None:
            return False
        try:
            await self._seek_to(tps, found)
        except (IllegalStateError, KafkaError) as exc:  # rebalanced meanwhile, or the broker went away
            _log.info("seek_repeated", reason=repr(exc))
            await asyncio.sleep(0.1)
            return False
        self._resume([tp for tp in self._resume_at if tp in tps.values()])
        self._seek_done = wanted
        self.reader.assigned(frozenset(tps))
        return True

    async def _seek_to(self, tps: Mapping[int, Any], found: Mapping[int, int]) -> None:
        if not tps:
            return
        if self.app.follows_commits:
            found = await self._thread.committed_offsets(tps.values())
        fresh = [TopicPartition(*tp) for partition, tp in tps.items() if partition not in found]
        if fresh:
            await self._thread.seek_to_beginning(*fresh)
            await self._thread.wait_positions(fresh)
        stored = {TopicPartition(*tps[partition]): offset for partition, offset in found.items() if partition in tps}
        await self.seek_wait(stored)

    def positions(self) -> dict[int, int] | None:
        found: dict[int, int] | None = self._thread.positions()
        return found

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002 - faust's signature
        """Tell Kafka how far we are; nobody but lag tools relies on it where the reader keeps positions."""
        offsets = {tp: offset for tp, offset in self._durable.items() if self._told_kafka.get(tp) != offset}
        held = self.assignment() if offsets else set()
        offsets = {tp: offset for tp, offset in offsets.items() if tp in held}
        if not offsets:
            return False
        try:
            async with asyncio.timeout(_COMMIT_SECONDS):
                await self._thread.commit_offsets(offsets)
        except (KafkaError, TimeoutError) as exc:
            _log.info("offsets_not_committed", reason=repr(exc))
            return False
        self._told_kafka.update(offsets)
        return True

    async def verify_all_partitions_active(self) -> None:
        """Faust's own detector counts single messages: it would report a stall for ever."""


class _Transport(driver.Transport):  # type: ignore[misc]
    Consumer = _Consumer


class _TableManager(TableManager):  # type: ignore[misc]
    async def on_start(self) -> None:
        """Without the second that faust waits for tables to be declared: there are none."""
        await self._update_channels()
        await self.recovery.start()


class _Boot(BootStrategy):  # type: ignore[misc]
    enable_kafka_producer = False
    enable_web = False
    enable_sensors = False

    def kafka_consumer(self) -> Iterable[Any]:
        """Only the consumer: no leader election, no reply topic."""
        return [self.app.consumer]


class _App(faust.App):  # type: ignore[misc]
    BootStrategy = _Boot

    def __init__(self, settings: ConsumerSettings, reader: Reader, *, follows_commits: bool) -> None:
        self.settings = settings
        self.reader = reader
        self.follows_commits = follows_commits
        self.over = asyncio.Event()
        super().__init__(
            settings.group,
            broker=[URL(f"aiokafka://{address.strip()}") for address in settings.bootstrap.split(",")],
            broker_client_id=settings.client_id,
            broker_session_timeout=settings.session_timeout,
            broker_heartbeat_interval=settings.session_timeout / 3,
            broker_rebalance_timeout=max(settings.session_timeout, _HANDOVER_SECONDS + _COMMIT_SECONDS),
            broker_max_poll_interval=LONGEST_POLL_MS / 1000,
            broker_request_timeout=_REQUEST_SECONDS,
            broker_max_poll_records=settings.max_records,
            broker_commit_interval=1.0,
            consumer_metadata_max_age_ms=int(settings.metadata_max_age * 1000),
            consumer_auto_offset_reset="earliest",
            stream_wait_empty=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            table_standby_replicas=0,  # or members would be assigned by faust's table assignor
            web_enabled=False,
            autodiscover=False,
            TableManager=_TableManager,
        )
        self.topics.add(self.topic(settings.topic, key_type=bytes, value_type=bytes))

    def _crash(self, reason: BaseException) -> None:
        super()._crash(reason)
        self.loop.call_soon_threadsafe(self.over.set)  # faust crashes from its thread as well

    def _new_transport(self) -> _Transport:
        return _Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Faust would make a folder for tables in the current one."""


class FaustWorker:
    """One life of a consumer. After it is over, make another."""

    def __init__(self, settings: ConsumerSettings, reader: Reader, *, follows_commits: bool) -> None:
        self._app = _App(settings, reader, follows_commits=follows_commits)

    async def start(self) -> None:
        """Join the group. Raises what the broker or faust raised."""
        await self._app.start()

    async def wait_over(self) -> BaseException | None:
        """Wait until the consumer ended by itself; answer why."""
        await self._app.over.wait()
        reason: BaseException | None = self._app.crash_reason
        return reason

    def positions(self) -> Mapping[int, int] | None:
        """Where fetching stands in each partition that is held, -1 where it has no place yet; None while joining."""
        found: Mapping[int, int] | None = self._app.consumer.positions()
        return found

    def paused(self) -> frozenset[int]:
        """Partitions that the reader wants later."""
        found: frozenset[int] = self._app.consumer.paused()
        return found

    async def stop(self) -> None:
        """Leave the group. A thread that does not end in time is left behind."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._app.stop()
        except TimeoutError:
            _log.warning("consumer_left_behind", seconds=_STOP_SECONDS)
