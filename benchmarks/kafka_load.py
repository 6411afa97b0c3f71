"""The load of W3 through Kafka: records on the events topic, and ends as they appear on the run-events topic."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from schemas.run_events import decode_run_event

EVENTS, RUN_EVENTS = "a44.events.v1", "a44.run-events.v1"
KEYS = 500
PATIENCE_SECONDS = 120.0
_POLL_EVERY, _FULL_SECONDS, _ASK_SECONDS, _MOST_RECORDS = 200, 0.05, 10.0, 1_000
_LINGER_MS, _LOOK_MS, _SOON_MS = 5, 50, 10
_DATA = {"text": "x" * 100}


def produce(bootstrap: str, event_type: str, runs: int, name: str) -> None:
    """Events over 500 keys; `name` keeps the keys of one measurement from those of another."""
    send_all(bootstrap, EVENTS, (_record(event_type, number, name) for number in range(runs)))


def _record(event_type: str, number: int, name: str) -> tuple[str, str]:
    key = f"p{number % KEYS}"
    envelope = {
        "id": f"evt_{name}_{number}",
        "type": event_type,
        "idempotency_key": f"{name}-{number}",
        "partition_key": key,
        "occurred_at": "2026-11-29T00:00:00Z",
        "attempt": 1,
        "project_id": "dev",
        "data": {"n": number, **_DATA},
    }
    return key, json.dumps(envelope)


def send_all(bootstrap: str, topic: str, records: Iterator[tuple[str, str]]) -> None:
    """As fast as the client can; returns when the broker has all."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": _LINGER_MS})
    for number, (key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(_FULL_SECONDS)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()


@dataclass(frozen=True, slots=True)
class Seen:
    record: Message
    at: float  # seconds of the clock on the wall


class Ends:
    """Records of a topic from the moment this was made on; each key counts once, however often it comes.

    The moment is told by the records' own time: an embedded broker names an end of a partition that lies before it.
    `soon`: each record is to be seen as it comes. A client that looks so often takes a twentieth of the machine.
    """

    def __init__(self, bootstrap: str, topic: str = RUN_EVENTS, *, soon: bool = False) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": _SOON_MS if soon else _LOOK_MS,
            }
        )
        places = [
            TopicPartition(topic, partition)
            for partition in self._consumer.list_topics(topic, _ASK_SECONDS).topics[topic].partitions
        ]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, _ASK_SECONDS)[1]
        self._consumer.assign(places)
        self._since_ms = int(1e3 * time.time())

    def wait_for(self, runs: int, at_once: int = _MOST_RECORDS) -> dict[bytes, Seen]:
        """The first record of each key once there are as many. Raises TimeoutError when nothing comes any more.

        Taken in batches they are cheap, and seen late: take one `at_once` where the moment counts.
        """
        found: dict[bytes, Seen] = {}
        last = time.time()
        while len(found) < runs:
            records = self._consumer.consume(min(runs - len(found), at_once), timeout=1.0)
            now = time.time()
            for record in records:
                if record.error():
                    raise KafkaException(record.error())
                if record.timestamp()[1] >= self._since_ms:
                    found.setdefault(record.key() or record.value(), Seen(record, now))
                last = now
            if now - last > PATIENCE_SECONDS:
                raise TimeoutError(f"{len(found)} of {runs} runs have ended, and no more for {PATIENCE_SECONDS:.0f} s")
        return found

    def close(self) -> None:
        self._consumer.close()


def check_all_succeeded(ended: dict[bytes, Seen]) -> None:
    """A fast failure is no figure."""
    states = {decode_run_event(one.record.value()).state for one in ended.values()}
    if states != {"succeeded"}:
        raise AssertionError(f"runs of the benchmark ended as {sorted(states)}")
