"""A topic on the shared broker, a producer for it, and consumers that a test can watch."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.consumer import ConsumerSettings, consume
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.measures import Measures
from processors.ports.streams import ConsumerState, Outgoing, Phase, Positions, Record
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

    def settings(self, client: str = "reader") -> ConsumerSettings:
        return ConsumerSettings(
            self.bootstrap, self.group, self.topic, client, metadata_max_age=1.0, stall_seconds=self.stall_seconds
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

    async def __call__(self, records: Sequence[Record]) -> None:
        if self.handler is not None:
            await self.handler(records)
        self.records.extend(records)
        self.polls.append(len(records))

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
            consume(place.settings(client), self, positions, self.stop, self.states.append, self.measures)
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

    async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
        assert topic
        self.asked.append((topic_id, frozenset(partitions)))
        if self.topic_id and topic_id != self.topic_id:
            return {}
        return {partition: offset for partition, offset in self.offsets.items() if partition in partitions}


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
