"""A topic on the shared broker, a producer for it, and consumers that a test can watch."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from processors.adapters.kafka import consumer
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.consumer import ConsumerSettings, consume
from processors.adapters.kafka.faust_worker import FaustWorker
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.measures import Measures
from processors.ports.streams import ConsumerState, Outgoing, Phase, Positions, Record, StateListener
from tests.support.waiting import until
from topology.topics import TopicSpec

PARTITIONS = 4


def spec_of(name: str) -> TopicSpec:
    return TopicSpec(name, PARTITIONS, 86_400_000)


def numbered(topic: str, numbers: Sequence[int]) -> list[Outgoing]:
    """One record a number, spread over the partitions in turn."""
    return [Outgoing(topic, b"k%d" % (n % PARTITIONS), b"%d" % n, (), n % PARTITIONS) for n in numbers]


@dataclass
class Place:
    """Where a test reads and writes."""

    bootstrap: str
    topic: str
    group: str
    stall_seconds: float = 30.0
    join_seconds: float = 20.0
    session_seconds: float = 6.0

    def settings(self, client: str = "reader") -> ConsumerSettings:
        return ConsumerSettings(
            self.bootstrap,
            self.group,
            self.topic,
            client,
            metadata_max_age=1.0,
            stall_seconds=self.stall_seconds,
            join_seconds=self.join_seconds,
            session_timeout=self.session_seconds,
        )


@dataclass
class Reading:
    """What one consumer took and said."""

    handler: Callable[[Sequence[Record]], Awaitable[None]] | None = None
    records: list[Record] = field(default_factory=list)
    polls: list[int] = field(default_factory=list)
    states: list[ConsumerState] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    measures: Measures = field(default_factory=Measures)
    on_state: StateListener = lambda _: None

    async def __call__(self, records: Sequence[Record]) -> None:
        if self.handler is not None:
            await self.handler(records)
        self.records.extend(records)
        self.polls.append(len(records))

    def hear(self, state: ConsumerState) -> None:
        self.states.append(state)
        self.on_state(state)

    def numbers(self, partition: int | None = None) -> list[int]:
        return [int(r.value or b"-1") for r in self.records if partition in (None, r.partition)]

    def partitions(self) -> frozenset[int]:
        """The partitions being read now."""
        held: frozenset[int] = frozenset()
        for state in self.states:
            if state.phase is Phase.ASSIGNED:
                held = state.partitions
            elif state.phase is Phase.REVOKED:
                held -= state.partitions
        return held

    async def until_reads(self, count: int, seconds: float = 30.0) -> None:
        await until(lambda: len(self.partitions()) == count, f"{count} partitions assigned", seconds)

    async def until_took(self, numbers: Sequence[int], seconds: float = 30.0) -> None:
        wanted = set(numbers)
        await until(lambda: wanted <= set(self.numbers()), f"{len(wanted)} numbers taken", seconds)

    @asynccontextmanager
    async def at(
        self, place: Place, positions: Positions | None = None, client: str = "reader"
    ) -> AsyncIterator[asyncio.Task[None]]:
        self.stop = asyncio.Event()
        task = asyncio.create_task(
            consume(place.settings(client), self, positions, self.stop, self.hear, self.measures)
        )
        try:
            yield task
        finally:
            self.stop.set()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()


class Kept:
    """Positions as Postgres would keep them."""

    def __init__(self, offsets: Mapping[int, int] | None = None) -> None:
        self.offsets = dict(offsets or {})
        self.topic_id = ""
        self.asked: list[tuple[str, frozenset[int]]] = []

    async def keep(self, records: Sequence[Record]) -> None:
        """A handler that makes the offsets of its batch durable."""
        self.offsets |= {record.partition: record.offset + 1 for record in records}

    async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
        assert topic
        self.asked.append((topic_id, frozenset(partitions)))
        if self.topic_id and topic_id != self.topic_id:
            return {}
        return {partition: offset for partition, offset in self.offsets.items() if partition in partitions}


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> list[FaustWorker]:
    """The lives of the consumers of a test, so that it can reach what goes wrong inside of them."""
    made: list[FaustWorker] = []

    class Seen(FaustWorker):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(consumer, "FaustWorker", Seen)
    return made


async def in_its_thread(life: FaustWorker, act: Callable[[Any], None]) -> None:
    """`act` with the aiokafka consumer, where it runs."""
    thread = life._app.consumer._thread

    async def do() -> None:
        act(thread._consumer)

    await thread.call_thread(do)


@pytest_asyncio.fixture
async def admin(kafka_bootstrap: str) -> KafkaAdmin:
    return KafkaAdmin(kafka_bootstrap, "test-admin")


@pytest_asyncio.fixture
async def place(kafka_bootstrap: str, topic_prefix: str, admin: KafkaAdmin) -> Place:
    made = Place(kafka_bootstrap, f"{topic_prefix}topic", f"{topic_prefix}group")
    assert await admin.ensure_topics([spec_of(made.topic)]) == [made.topic]
    return made


@pytest_asyncio.fixture
async def producer(kafka_bootstrap: str) -> AsyncIterator[KafkaProducer]:
    made = KafkaProducer(kafka_bootstrap, "test-producer")
    yield made
    await made.aclose()


@pytest.fixture
def reading() -> Reading:
    return Reading()
