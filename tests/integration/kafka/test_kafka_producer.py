"""Batches are written in order, each record is answered, and failures stay with their record."""

import asyncio

from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.partitioner import partition_of
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import Delivery, Outgoing
from schemas.errors import Refused, Unavailable
from tests.integration.kafka.conftest import PARTITIONS, Place, Reading, numbered, spec_of
from tests.support.waiting import until


async def test_answers_stand_in_the_order_of_the_batch(producer: KafkaProducer, place: Place):
    answers = await producer.send(numbered(place.topic, range(1000)))
    assert answers == [Delivery(n % PARTITIONS, n // PARTITIONS) for n in range(1000)]
    assert await producer.send([]) == []


async def test_without_a_partition_the_key_decides_as_in_the_java_client(producer: KafkaProducer, place: Place):
    keys = [b"key-%d" % n for n in range(50)]
    answers = await producer.send([Outgoing(place.topic, key, b"") for key in keys])
    partitions = [answer.partition for answer in answers if isinstance(answer, Delivery)]
    assert partitions == [partition_of(key, PARTITIONS) for key in keys]


async def test_batches_sent_side_by_side_each_get_their_own_answers(producer: KafkaProducer, place: Place):
    batches = await asyncio.gather(*(producer.send(numbered(place.topic, range(n, n + 40))) for n in range(20)))
    offsets = [
        (answer.partition, answer.offset) for batch in batches for answer in batch if isinstance(answer, Delivery)
    ]
    assert len(set(offsets)) == 800


async def test_nothing_behind_a_record_that_was_refused_is_written(
    producer: KafkaProducer, place: Place, reading: Reading
):
    first, bad, behind = numbered(place.topic, [0, 4, 8])
    bad.value = b"x" * 9_000_000
    answers = await producer.send([first, bad, behind])
    assert isinstance(answers[1], Refused)
    assert isinstance(answers[2], Unavailable)
    assert answers[1].code == "E_RECORD_TOO_LARGE"
    assert all(isinstance(answer, Delivery) for answer in await producer.send(numbered(place.topic, [12])))
    async with reading.at(place):
        await reading.until_took([12])
    assert 8 not in reading.numbers()


async def test_the_largest_body_that_a_door_takes_fits(producer: KafkaProducer, place: Place, reading: Reading):
    body = b"9" * 1_040_000
    answers = await producer.send([Outgoing(place.topic, b"k", body, (("a44-seq", b"1"),), 0)])
    assert answers == [Delivery(0, 0)]
    async with reading.at(place):
        await until(lambda: len(reading.records) == 1, "the large record")
    assert reading.records[0].value == body


async def test_an_unknown_topic_is_an_answer_and_the_next_batch_goes_through(producer: KafkaProducer, place: Place):
    answers = await producer.send([Outgoing(f"{place.topic}-none", b"k", b"v")])
    assert isinstance(answers[0], Unavailable)
    assert isinstance((await producer.send(numbered(place.topic, [1])))[0], Delivery)


async def test_a_broker_that_does_not_answer_is_told_within_the_timeout(unused_tcp_port: int):
    producer = KafkaProducer(f"127.0.0.1:{unused_tcp_port}", "lonely", message_timeout=1.0)
    answers = await asyncio.wait_for(producer.send(numbered("t", range(3))), 15)
    assert [type(answer) for answer in answers] == [Unavailable] * 3
    await producer.aclose()


async def test_hints_are_written_without_waiting(producer: KafkaProducer, place: Place, reading: Reading):
    async with reading.at(place):
        await reading.until_reads(PARTITIONS)
        producer.send_unawaited(numbered(place.topic, range(10)))
        await reading.until_took(range(10))


async def test_topics_are_made_once_and_told_by_id_and_count(admin: KafkaAdmin, place: Place):
    other = f"{place.topic}-other"
    assert await admin.ensure_topics([spec_of(place.topic), spec_of(other)]) == [other]
    ids = await admin.topic_ids([place.topic, other, f"{place.topic}-none"])
    assert ids.keys() == {place.topic, other}
    assert ids[place.topic] != ids[other]
    assert await admin.topic_ids([place.topic]) == {place.topic: ids[place.topic]}
    assert await admin.partition_counts([other, "none"]) == {other: PARTITIONS}
    assert await admin.topic_ids([]) == {}
