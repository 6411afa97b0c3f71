"""Writes batches through librdkafka: idempotent, acks=all, a report awaited for every record.

One thread serves the reports; a batch crosses to the event loop once, when its last report is in. The
first failure takes back what still waits behind it, so that nothing overtakes the record that failed.
An idempotent producer that met a broker without its data never recovers, so after a report that timed
out, an unknown topic or a fatal error a new producer takes its place. It gets to know the broker before its first
batch: a busy one takes its time for each answer, and whatever a record waits for counts against its timeout.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from processors.adapters.kafka import driver_logs
from processors.ports.streams import Delivery, Outgoing
from schemas.errors import Broken, Refused, Unavailable

_log = structlog.get_logger("kafka.producer")
_driver_log = logging.getLogger("a44.kafka.producer")
# librdkafka calls the setting experimental at each start; it is tested here.
_driver_log.addFilter(lambda record: "enable.gapless.guarantee is experimental" not in record.getMessage())
driver_logs.limit("a44.kafka.producer")

_POLL_SECONDS: Final = 0.2
_FULL_SECONDS: Final = 0.01
_FLUSH_SECONDS: Final = 3.0
_TAKEN_BACK: Final = KafkaError(KafkaError._PURGE_QUEUE)  # noqa: SLF001 - the name is public
Report = Callable[[KafkaError | None, Message], None]


class _Reports:
    """The reports of one batch: `add` runs on the poll thread, everything else on the loop."""

    def __init__(self, life: "_Life", size: int) -> None:
        self._life = life
        self.answers: list[Delivery | KafkaError | None] = [None] * size
        self._came = 0
        self._expected = -1
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    def add(self, at: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.answers[at] = Delivery(message.partition(), message.offset())
        else:
            self.answers[at] = error
            self._life.take_back()
        self._came += 1
        if self._came == self._expected and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    async def wait_for(self, count: int) -> None:
        """Wait until that many reports came. Whichever side comes second sees the other's number."""
        self._expected = count
        if self._came == count:
            self._finish()
        await self._done


class _Life:
    """One librdkafka producer with the thread that serves it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.client = confluent_kafka.Producer(settings, logger=_driver_log)
        self.worn_out = False
        self.taken_back = False
        self.known: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="a44-producer", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ending.is_set():
            try:
                self.client.poll(_POLL_SECONDS)
            except KafkaException as exc:  # a fatal error; this thread still has to bring the reports
                _log.warning("producer_failed", reason=exc.args[0].str())
                self.take_back()
        self.client.purge()  # whoever still waits is answered now
        self.client.flush(_FLUSH_SECONDS)

    def take_back(self) -> None:
        """On the poll thread: fail whatever is still waiting. Which takes time, so once is enough."""
        if not self.taken_back:
            self.taken_back = self.worn_out = True
            self.client.purge(blocking=False)

    def learn(self, topic: str, seconds: float) -> None:
        """Connect, and have the broker tell of a topic. Blocks; raises Unavailable. What came of it so far is kept."""
        try:
            fault = self.client.list_topics(topic, seconds).topics[topic].error
        except KafkaException as exc:
            fault = exc.args[0]
        if fault is not None:
            raise Unavailable("E_UNAVAILABLE", f"Kafka does not tell a new producer of {topic}: {fault.str()}")
        self.known.add(topic)

    def write(self, record: Outgoing, report: Report | None) -> None:
        """Queue a record. Raises BufferError while the queue is full."""
        where = -1 if record.partition is None else record.partition
        self.client.produce(
            record.topic, record.value, record.key, where, on_delivery=report, headers=list(record.headers)
        )

    async def end(self, flush_seconds: float) -> None:
        if flush_seconds > 0:
            await asyncio.to_thread(self.client.flush, flush_seconds)
        self._ending.set()
        await asyncio.to_thread(self._thread.join)


class KafkaProducer:
    """Implements `processors.ports.streams.Producer`. Made and used on one event loop."""

    def __init__(self, bootstrap: str, client_id: str, *, message_timeout: float = 10.0) -> None:
        """Connect in the background; `message_timeout` (seconds) bounds how long a report can take."""
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "enable.gapless.guarantee": True,
            "message.timeout.ms": int(message_timeout * 1000),
            "message.max.bytes": 8_388_608,  # the topic's own limit decides; ours would refuse a body of 1 MB
            "linger.ms": 1,
            "partitioner": "murmur2_random",
            "topic.metadata.refresh.interval.ms": 3_000,
            "topic.metadata.propagation.max.ms": 5_000,
            "reconnect.backoff.max.ms": 1_000,
            "allow.auto.create.topics": False,
        }
        self._timeout = message_timeout
        self._life = _Life(self._settings)
        self._farewells: set[asyncio.Task[None]] = set()

    async def ready(self, topics: Collection[str]) -> None:
        """Know the broker and these topics. One that is not known yet is not worn out: the next try goes on with it."""
        life = self._current()
        for topic in topics:
            if topic not in life.known:
                await asyncio.to_thread(life.learn, topic, self._timeout)

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        """Write a batch and wait for its reports."""
        life = self._current()
        reports = _Reports(life, len(batch))
        written = 0
        for at, record in enumerate(batch):
            try:
                while not self._is_written(life, record, partial(reports.add, at)):  # noqa: ASYNC110  nobody tells of room
                    await asyncio.sleep(_FULL_SECONDS)
            except KafkaException as exc:  # nothing behind it is written, or it would overtake
                reports.answers[at:] = [exc.args[0]] + [_TAKEN_BACK] * (len(batch) - at - 1)
                life.worn_out = True
                break
            written += 1
        if written:
            await reports.wait_for(written)
        return [_told(record, answer) for record, answer in zip(batch, reports.answers, strict=True)]

    def send_unawaited(self, batch: Sequence[Outgoing]) -> None:
        """Write hints; what finds no room is dropped."""
        life = self._current()
        for record in batch:
            try:
                life.write(record, None)
            except BufferError:
                _log.warning("hints_dropped", reason="the queue to the broker is full")
                return
            except KafkaException as exc:
                life.worn_out = True
                _log.warning("hints_refused", reason=exc.args[0].str())
                return

    async def aclose(self) -> None:
        """Write what is waiting, at most for a few seconds."""
        await self._life.end(_FLUSH_SECONDS)
        while self._farewells:
            await asyncio.wait(self._farewells)

    def _is_written(self, life: _Life, record: Outgoing, report: Report) -> bool:
        """Whether there was room for it."""
        if life.worn_out:  # something before it failed, perhaps while it waited for room
            raise KafkaException(_TAKEN_BACK)
        try:
            life.write(record, report)
        except BufferError:
            return False
        return True

    def _current(self) -> _Life:
        if self._life.worn_out:
            _log.warning("producer_replaced", reason="a record could not be delivered")
            old, self._life = self._life, _Life(self._settings)
            farewell = asyncio.create_task(old.end(0.0))
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)
        return self._life


def _told(record: Outgoing, answer: Delivery | KafkaError | None) -> Delivery | Unavailable | Refused:
    if isinstance(answer, Delivery):
        return answer
    if answer is None:
        raise Broken("E_INTERNAL", "a batch was answered before its last report")
    if answer.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return Refused(
            "E_RECORD_TOO_LARGE",
            f"a record of {len(record.value):,} bytes is larger than the topic {record.topic} takes; "
            "raise max.message.bytes of the topic, then send the event again",
        )
    return Unavailable("E_UNAVAILABLE", f"Kafka did not take a record for {record.topic}: {answer.str()}")
