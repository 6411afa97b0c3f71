"""Listens to the run-events topic from its first record on, as a consumer outside the service does."""

import asyncio
import threading
from collections import Counter

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.run_events import decode_run_event

TOPIC = "a44.run-events.v1"
WAIT_SECONDS = 0.2


class Announcements:
    """`seen` counts each event's id; `times` are the brokers' or the relay's, in seconds, of every record.

    Reads without a group, from the first record of each partition; a topic that was made anew is read anew.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._again = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self.seen: Counter[str] = Counter()
        self.times: list[float] = []

    def start(self) -> None:
        self._task = asyncio.create_task(asyncio.to_thread(self._listen))

    def read_anew(self) -> None:
        """The broker has lost its data: begin with the first record of what is there now."""
        self._again.set()

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    def _listen(self) -> None:
        while not self._stop.is_set():
            self._again.clear()
            settings = {"bootstrap.servers": self._bootstrap, "group.id": "chaos-watch", "log_level": 0}
            consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
            try:
                self._read(consumer)
            finally:
                consumer.close()

    def _read(self, consumer: Consumer) -> None:
        partitions = self._partitions()
        if not partitions:
            self._stop.wait(WAIT_SECONDS)
            return
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(partitions)])
        while not self._stop.is_set() and not self._again.is_set():
            for message in consumer.consume(500, WAIT_SECONDS):
                if message.error() is None:
                    self.seen[decode_run_event(message.value() or b"").id] += 1
                    self.times.append(message.timestamp()[1] / 1000)

    def _partitions(self) -> int:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        try:
            found = admin.list_topics(timeout=2).topics.get(TOPIC)
        except KafkaException:
            return 0  # the broker is away, which is no news here: asked again
        return len(found.partitions) if found else 0
