"""Reads a topic in a group and hands whole polls to a handler, until told to stop.

A batch is left only when the handler returned: `Unavailable` brings the same records again after a
pause, in order; a partition that the handler wants later is paused by itself. Start offsets come from
`positions` where given (Postgres knows what is durable), else from the group's commits. A broker that
is away, a topic made again, or a partition that stands still although there is something to read, is
ridden out by beginning anew.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog

from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.faust_worker import FETCH_WAIT, IDLE_FETCH_WAIT, ConsumerSettings, FaustWorker
from processors.adapters.kafka.progress import Progress, Stalled
from processors.ports.measures import Measures
from processors.ports.streams import (
    Admin,
    BatchHandler,
    ConsumerState,
    Later,
    Phase,
    Positions,
    Record,
    StateListener,
)
from schemas.errors import Broken, Refused, Unavailable

__all__ = ["FETCH_WAIT", "IDLE_FETCH_WAIT", "ConsumerSettings", "consume"]

_log = structlog.get_logger("kafka.consumer")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_LOOKS_UNTIL_STALLED: Final = 6


async def consume(
    settings: ConsumerSettings,
    handler: BatchHandler,
    positions: Positions | None,
    stop: asyncio.Event,
    on_state: StateListener = lambda _: None,
    measures: Measures | None = None,
) -> None:
    """Read until `stop` is set, then leave the group. Raises whatever the handler raised but `Unavailable`."""
    measures = measures or Measures()
    admin = KafkaAdmin(settings.bootstrap, f"{settings.client_id}-admin")
    pause = _Pause()
    while not stop.is_set():
        topic_id = await _wait_for_topic(settings, admin, stop, on_state)
        if topic_id is None:
            return
        life = _Life(settings, admin, topic_id, handler, positions, on_state, measures)
        reason = await life.run(stop)
        if life.failure is not None:
            raise life.failure
        if reason:
            _log.warning("consumer_begins_anew", topic=settings.topic, group=settings.group, reason=reason)
            measures.count("consumer_restarts_total", 1, settings.topic)
            on_state(ConsumerState(Phase.WAITING, reason=reason))
            await pause.wait(stop)


async def _wait_for_topic(
    settings: ConsumerSettings, admin: Admin, stop: asyncio.Event, on_state: StateListener
) -> str | None:
    pause = _Pause()
    while not stop.is_set():
        try:
            found = (await admin.topic_ids([settings.topic])).get(settings.topic)
            reason = f"the topic {settings.topic} does not exist"
        except Unavailable as exc:
            found, reason = None, exc.message
        if found is not None:
            return found
        on_state(ConsumerState(Phase.WAITING, reason=reason))
        await pause.wait(stop)
    return None


class _Pause:
    """Waits longer each time, and ends at once when an event is set."""

    def __init__(self) -> None:
        self._seconds = _FIRST_PAUSE

    async def wait(self, event: asyncio.Event) -> None:
        seconds, self._seconds = self._seconds, min(self._seconds * 2, _LONGEST_PAUSE)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return


class _Life:
    """One membership of the group; the reader of its worker."""

    def __init__(
        self,
        settings: ConsumerSettings,
        admin: KafkaAdmin,
        topic_id: str,
        handler: BatchHandler,
        positions: Positions | None,
        on_state: StateListener,
        measures: Measures,
    ) -> None:
        self.failure: Exception | None = None
        self._settings = settings
        self._admin = admin
        self._topic_id = topic_id
        self._handler = handler
        self._positions = positions
        self._on_state = on_state
        self._measures = measures
        self._failed = asyncio.Event()
        self._look_seconds = settings.stall_seconds / _LOOKS_UNTIL_STALLED
        self._progress = Progress(settings.stall_seconds, self._look_seconds, time.monotonic())

    async def run(self, stop: asyncio.Event) -> str:
        """Read until told to stop (empty answer) or until the life is over (the reason)."""
        worker = FaustWorker(self._settings, self, follows_commits=self._positions is None)
        try:
            return await _first(self._live(worker), _silently(stop), _silently(self._failed))
        finally:
            await worker.stop()

    async def _live(self, worker: FaustWorker) -> str:
        return await _first(self._work(worker), self._watch_topic(), self._watch_progress(worker))

    async def _work(self, worker: FaustWorker) -> str:
        try:
            await worker.start()
        except Broken as exc:  # a defect of ours: another life would have it as well
            self.failure = exc
            return str(exc)
        except Exception as exc:  # noqa: BLE001 - faust and aiokafka raise without a common base; begin anew
            return f"it did not start: {exc!r}"
        return f"faust ended it: {await worker.wait_over()!r}"

    async def _watch_topic(self) -> str:
        missed = 0
        while True:
            await asyncio.sleep(self._settings.metadata_max_age)
            try:
                found = (await self._admin.topic_ids([self._settings.topic])).get(self._settings.topic)
            except (Unavailable, Refused) as exc:
                _log.info("topic_id_unknown", topic=self._settings.topic, reason=exc.message)
                continue
            missed = 0 if found else missed + 1
            if missed > 1:  # once may be a broker whose metadata is late
                return "the topic is gone"
            if found and found != self._topic_id:
                return "the topic was made again"

    async def _watch_progress(self, worker: FaustWorker) -> str:
        """Members whose heartbeat is fine may still read nothing: end the life of one that does."""
        told, joining_since = frozenset[int](), time.monotonic()
        try:
            while True:
                await asyncio.sleep(self._look_seconds)
                positions = worker.positions()
                if positions is None:
                    if time.monotonic() - joining_since > self._settings.join_seconds:
                        await self._admin.forget_group(self._settings.group)
                        return "the group shares out no partitions"
                    continue
                joining_since = time.monotonic()
                stalled = await self._look(positions, worker.paused(), told - positions.keys())
                told = frozenset(positions)
                if stalled:
                    return f"partition {stalled[0].partition} stands still at {stalled[0].position}"
        finally:
            self._tell_lag({}, {}, told)

    async def _look(self, positions: Mapping[int, int], paused: frozenset[int], gone: frozenset[int]) -> list[Stalled]:
        """The partitions that stand still unasked, each of them logged."""
        topic = self._settings.topic
        try:
            # Over a connection of the admin's: the consumer's own may be what hangs.
            ends = await self._admin.end_offsets(topic, sorted(positions))
        except (Unavailable, Refused):
            self._progress.begin_anew(time.monotonic())
            return []
        self._tell_lag(positions, ends, gone)
        watched = {partition: at for partition, at in positions.items() if partition not in paused}
        stalled = self._progress.look(watched, ends, time.monotonic())
        for one in stalled:
            place = {"partition": one.partition, "position": one.position, "end": one.end}
            _log.error("consumer_stalled", topic=topic, seconds=round(one.seconds, 1), **place)
        return stalled

    def _tell_lag(self, positions: Mapping[int, int], ends: Mapping[int, int], gone: frozenset[int]) -> None:
        for partition, end in ends.items():
            lag = max(end - max(positions[partition], 0), 0)
            self._measures.set("consumer_lag", lag, self._settings.topic, str(partition))
        for partition in gone:
            self._measures.forget("consumer_lag", self._settings.topic, str(partition))

    # -- the reader of the worker

    async def locate(self, partitions: Sequence[int], abandon: asyncio.Event) -> Mapping[int, int] | None:
        positions = self._positions
        if positions is None:
            return {}
        found: list[Mapping[int, int]] = []

        async def ask() -> None:
            found.append(await positions.positions(self._settings.topic, self._topic_id, partitions))

        return found[0] if await self._until_available(ask, frozenset(partitions), abandon) else None

    async def take(self, records: Sequence[Record], abandon: asyncio.Event) -> Mapping[int, Later] | None:
        touched = frozenset(record.partition for record in records)
        later: dict[int, Later] = {}

        async def hand_over() -> None:
            later.update(await self._handler(records) or {})

        return later if await self._until_available(hand_over, touched, abandon) else None

    def assigned(self, partitions: frozenset[int]) -> None:
        self._on_state(ConsumerState(Phase.ASSIGNED, partitions))

    def revoked(self, partitions: frozenset[int]) -> None:
        self._on_state(ConsumerState(Phase.REVOKED, partitions))

    async def _until_available(
        self, attempt: Callable[[], Coroutine[Any, Any, None]], partitions: frozenset[int], abandon: asyncio.Event
    ) -> bool:
        self._progress.handler_begins(time.monotonic())
        try:
            return await self._attempt_until_available(attempt, partitions, abandon)
        finally:
            self._progress.handler_ends(time.monotonic())

    async def _attempt_until_available(
        self, attempt: Callable[[], Coroutine[Any, Any, None]], partitions: frozenset[int], abandon: asyncio.Event
    ) -> bool:
        pause = _Pause()
        while not abandon.is_set():
            try:
                await attempt()
            except Unavailable as exc:
                self._on_state(ConsumerState(Phase.RETRYING, partitions, exc.message))
                await pause.wait(abandon)
            except Exception as exc:  # noqa: BLE001 - kept, and raised by `consume` once the group is left
                self.failure = exc
                self._failed.set()
                await abandon.wait()
            else:
                return True
        return False


async def _silently(event: asyncio.Event) -> str:
    await event.wait()
    return ""


async def _first(*ways: Coroutine[Any, Any, str]) -> str:
    """The answer of the first that ends; the others are cancelled and awaited."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task in done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
