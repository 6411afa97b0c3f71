"""A broker that is not up yet, or comes back without its data, is ridden out by consumer and producer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from ops.embedded.broker import EmbeddedBroker
from ops.embedded.ports import free_port
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import Phase
from schemas.errors import Unavailable
from tests.integration.kafka.conftest import PARTITIONS, Kept, Place, Reading, numbered, spec_of
from tests.support.waiting import until


@pytest_asyncio.fixture
async def own_broker(tmp_path: Path) -> AsyncIterator[EmbeddedBroker]:
    """A broker that the test may stop; not started yet, its port is known."""
    broker = EmbeddedBroker(tmp_path, tmp_path, free_port())
    yield broker
    await broker.stop()


async def delivered(producer: KafkaProducer, place: Place, numbers: range) -> bool:
    return not any(isinstance(answer, Unavailable) for answer in await producer.send(numbered(place.topic, numbers)))


async def test_a_broker_that_comes_late_and_one_that_comes_back_empty(own_broker: EmbeddedBroker, reading: Reading):
    place = Place(own_broker.bootstrap, "topic", "group")
    producer = KafkaProducer(place.bootstrap, "producer", message_timeout=2.0)
    admin = KafkaAdmin(place.bootstrap, "admin")
    kept = Kept(dict.fromkeys(range(PARTITIONS), 1))
    async with reading.at(place, kept):
        await until(lambda: any(s.phase is Phase.WAITING for s in reading.states), "told that it waits")
        await own_broker.start()
        await until(lambda: made(admin, place), "the topic made")
        kept.topic_id = (await admin.topic_ids([place.topic]))[place.topic]
        await until(lambda: delivered(producer, place, range(20)), "the first records delivered")
        await reading.until_took(range(PARTITIONS, 20))

        await own_broker.stop()
        assert not await delivered(producer, place, range(20, 24))
        await own_broker.start()
        await until(lambda: made(admin, place), "the topic made again")
        await until(lambda: delivered(producer, place, range(100, 120)), "records delivered again", 30)
        await reading.until_took(range(100, 120), 45)
    await producer.aclose()
    assert reading.numbers(0)[-5:] == list(range(100, 120, PARTITIONS))


async def made(admin: KafkaAdmin, place: Place) -> bool:
    try:
        await admin.ensure_topics([spec_of(place.topic)])
    except Unavailable:
        return False
    return True
