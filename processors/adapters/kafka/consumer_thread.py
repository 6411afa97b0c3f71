"""The thread in which aiokafka fetches and keeps the membership, mended where faust's driver and aiokafka need it.

Its methods are called from the other loop; what they ask runs here. Everything private that is touched is of pinned
versions, and has a test that fails when it changes.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import aiokafka.client
import structlog
from aiokafka import TopicPartition
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import OffsetAndMetadata
from faust.transport.drivers import aiokafka as driver
from mode.threads import WorkerThread

from processors.adapters.kafka import driver_logs, fetched_records
from schemas.errors import Broken

_log = structlog.get_logger("kafka.consumer")
LONGEST_POLL_MS: Final = 86_400_000  # a handler that waits for Postgres keeps its partitions
fetched_records.install()
driver_logs.limit("aiokafka", "faust", "mode")

# aiokafka asks for metadata in a way that lets the broker make a missing topic, with its own defaults and
# behind the back of whoever is to make it properly. Nothing but this adapter uses aiokafka here.
aiokafka.client.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)


class _QuietThread(WorkerThread):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.daemon = True  # one that hangs must not keep the process from ending

    def run(self) -> None:
        try:
            super().run()
        except Exception as exc:  # noqa: BLE001 - the service has noted it; the default hook would print it
            _log.warning("consumer_thread_ended", reason=repr(exc))


class ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    Worker = _QuietThread

    def _create_worker_consumer(self, transport: Any) -> Any:
        made = super()._create_worker_consumer(transport)
        # The driver has 1500 ms written in, and aiokafka offers no other way to change it afterwards.
        made._fetch_max_wait_ms = self._hold_ms(is_idle=False)  # noqa: SLF001 - see above
        self._check(made)
        return made

    def _hold_ms(self, *, is_idle: bool) -> int:
        settings = self.app.settings
        return int(1000 * (settings.idle_fetch_wait if is_idle else settings.fetch_wait))

    def hold_fetches(self, *, is_idle: bool) -> None:
        """How long the broker may hold the next fetch: a hundred of them a second are dear where nothing comes."""
        fetcher = getattr(self._consumer, "_fetcher", None)
        if fetcher is not None:
            fetcher._fetch_max_wait_ms = self._hold_ms(is_idle=is_idle)  # noqa: SLF001 - read before each fetch

    def _check(self, made: Any) -> None:
        """What the client really works by, whatever was asked for: it is the client that loses records."""
        faults = {
            "it would commit by itself, before records are durable": made._enable_auto_commit,  # noqa: SLF001 - nothing public tells it
            "it would begin at the end of a partition that it does not know": made._auto_offset_reset != "earliest",  # noqa: SLF001 - same
            "it would drop out of its group when a handler takes long": made._max_poll_interval_ms < LONGEST_POLL_MS,  # noqa: SLF001 - same
        }
        found = [fault for fault, is_there in faults.items() if is_there]
        if found:
            made._closed = True  # noqa: SLF001 - it has nothing open yet, and would complain
            raise Broken("E_INTERNAL", f"the Kafka client is not set up as it must be: {'; '.join(found)}")

    async def _wakeup_timer_in_thread(self) -> None:
        """Wake the loop that made us. Mode hands it a coroutine for that, which a loop that has ended never awaits."""
        self.last_wakeup_at = time.monotonic()
        await self.sleep(0)
        with suppress(RuntimeError):  # it has ended
            self.parent_loop.call_soon_threadsafe(int)

    def on_crash(self, msg: str, *fmt: Any, **_: Any) -> None:
        _log.warning("consumer_thread_crashed", reason=msg.format(*fmt))

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        await self._unless_stopped(super().on_partitions_revoked(revoked))

    async def on_partitions_assigned(self, assigned: set[Any], generation_id: int = 0) -> None:
        await self._unless_stopped(super().on_partitions_assigned(assigned, generation_id))

    async def _unless_stopped(self, callback: Coroutine[Any, Any, None]) -> None:
        """The other loop answers nobody once it stops: a rebalance at that moment would wait for ever."""
        ways = [asyncio.ensure_future(callback), asyncio.ensure_future(self._stopped.wait())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)

    def close(self) -> None:
        """Faust would close the connections in the wrong loop, which leaves them open; stopping closes them."""

    async def on_thread_stop(self) -> None:
        """Leave the group also in generation 0: the embedded broker counts from there, and aiokafka
        takes it for "no member" and would let the group wait until the session has run out.
        """
        coordinator = getattr(self._consumer, "_coordinator", None)
        if coordinator is not None and coordinator.generation == 0:
            coordinator.generation = 1  # not part of the request to leave
        await self._end_fetches()
        await super().on_thread_stop()

    async def _end_fetches(self) -> None:
        """Aiokafka ends them as well, but where one waits to try again it takes the end for its own: it closes nothing
        that comes after, and nobody hears that the thread is done.
        """
        fetcher = getattr(self._consumer, "_fetcher", None)
        if fetcher is None:
            return
        for tasks in ([fetcher._fetch_task], list(fetcher._pending_tasks)):  # noqa: SLF001 - no other way in
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        fetcher._pending_tasks.clear()  # noqa: SLF001 - same

    async def commit_offsets(self, offsets: Mapping[Any, int]) -> None:
        asked = {TopicPartition(*tp): OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
        await self.call_thread(self._ensure_consumer().commit, asked)

    async def committed_offsets(self, tps: Iterable[Any]) -> dict[int, int]:
        consumer = self._ensure_consumer()
        told = {tp.partition: await self.call_thread(consumer.committed, TopicPartition(*tp)) for tp in tps}
        return {partition: offset for partition, offset in told.items() if offset is not None}

    def positions(self) -> dict[int, int] | None:
        """Where fetching stands in each partition that is held, -1 where it has no place yet; None while joining.

        Read from the other thread as it is: asking would wait for what may be stuck.
        """
        subscription = getattr(getattr(self._consumer, "_subscription", None), "subscription", None)
        if subscription is None or subscription.assignment is None or subscription._reassignment_in_progress:  # noqa: SLF001 - see above
            return None
        assignment = subscription.assignment
        places = {tp.partition: assignment.state_value(tp)._position for tp in assignment.tps}  # noqa: SLF001 - same
        return {partition: -1 if place is None else place for partition, place in places.items()}

    async def wait_positions(self, tps: Iterable[Any]) -> None:
        consumer = self._ensure_consumer()
        for tp in tps:
            await self.call_thread(consumer.position, TopicPartition(*tp))
