"""Topics behind their ports, on Kafka and in memory."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.consumer import ConsumerSettings, consume
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import Admin, BatchHandler, Positions, Producer
from tests.conformance_of_ports.plain_time import PlainLoop
from tests.simulation.memory.broker import Broker
from tests.simulation.memory.network import Network, Weather
from tests.simulation.memory.streams import MemoryAdmin, MemoryConsumer, MemoryProducer
from topology.topics import TopicSpec

Consume = Callable[[BatchHandler, Positions | None, asyncio.Event], Coroutine[Any, Any, None]]
PARTITIONS = 4


@dataclass
class Streams:
    """One topic's name, not made yet; `consume` reads it in one group."""

    spec: TopicSpec
    admin: Admin
    producer: Producer
    consume: Consume
    delete: Callable[[], Coroutine[Any, Any, None]]


def memory_streams() -> Streams:
    loop: Any = PlainLoop()
    broker = Broker(Network(loop, random.Random(1), Weather()), lambda *_: None)
    spec = TopicSpec("events", PARTITIONS, 86_400_000)

    async def read(handler: BatchHandler, positions: Positions | None, stop: asyncio.Event) -> None:
        reading = asyncio.create_task(MemoryConsumer(broker, "group", spec.name, handler, positions, 5_000).run(stop))
        await stop.wait()
        broker.wake(loop.world)
        await reading

    async def delete() -> None:
        broker.delete(spec.name)

    return Streams(spec, MemoryAdmin(broker), MemoryProducer(broker), read, delete)


@asynccontextmanager
async def kafka_streams(bootstrap: str, prefix: str) -> AsyncIterator[Streams]:
    producer = KafkaProducer(bootstrap, "conformance")
    spec = TopicSpec(f"{prefix}events", PARTITIONS, 86_400_000)
    readers, deleting = iter(range(100)), AdminClient({"bootstrap.servers": bootstrap})

    async def read(handler: BatchHandler, positions: Positions | None, stop: asyncio.Event) -> None:
        name = f"reader-{next(readers)}"
        settings = ConsumerSettings(bootstrap, f"{prefix}group", spec.name, name, metadata_max_age=1.0)
        await consume(settings, handler, positions, stop)

    async def delete() -> None:
        asked = deleting.delete_topics([spec.name], operation_timeout=10)
        await asyncio.wrap_future(asked[spec.name])

    try:
        yield Streams(spec, KafkaAdmin(bootstrap, "conformance"), producer, read, delete)
    finally:
        await producer.aclose()
