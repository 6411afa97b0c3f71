"""A producer whose header names are no UTF-8 stops no partition: its record is read, and so are all after it."""

import asyncio
import os
import sys

from processors.adapters.kafka.producer import KafkaProducer
from tests.integration.kafka.conftest import PARTITIONS, Kept, Place, Reading, numbered

# aiokafka's own writer in Python asks the name for its bytes; the one in C, as confluent-kafka, wants real text.
FOREIGN = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

class Foreign(str):
    def encode(self, *_):
        return bytes([255, 254])

async def main():
    producer = AIOKafkaProducer(bootstrap_servers=sys.argv[1])
    await producer.start()
    await producer.send_and_wait(sys.argv[2], b"100", partition=0, headers=[(Foreign("x"), b"y")])
    await producer.stop()

asyncio.run(main())
"""


async def test_a_record_with_a_foreign_header_name_is_read_and_its_partition_goes_on(
    kafka_bootstrap: str, producer: KafkaProducer, place: Place, reading: Reading
) -> None:
    before = list(range(0, 3 * PARTITIONS, PARTITIONS))
    await producer.send(numbered(place.topic, before))
    foreign = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FOREIGN, kafka_bootstrap, place.topic, env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}
    )
    assert await foreign.wait() == 0
    after = list(range(3 * PARTITIONS, 6 * PARTITIONS, PARTITIONS))
    await producer.send(numbered(place.topic, after))
    async with reading.at(place, Kept()):
        await reading.until_took([*before, 100, *after])
    assert reading.numbers(0) == [*before, 100, *after]
