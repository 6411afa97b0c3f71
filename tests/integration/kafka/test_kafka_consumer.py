"""Consumers take whole polls, lose nothing over refusals and rebalances, and begin where they are told."""

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from aiokafka.protocol.fetch import FetchRequest

from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.faust_worker import FETCH_WAIT, IDLE_FETCH_WAIT, FaustWorker
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import Outgoing, Phase, Record
from schemas.errors import Unavailable
from tests.integration.kafka.conftest import PARTITIONS, Kept, Place, Reading, in_its_thread, numbered, spec_of
from tests.support.waiting import until


async def test_a_backlog_comes_in_whole_polls_in_the_order_of_each_partition(
    producer: KafkaProducer, place: Place, reading: Reading
):
    await producer.send(numbered(place.topic, range(4000)))
    async with reading.at(place):
        await reading.until_took(range(4000))
    assert len(reading.polls) < 100
    for partition in range(PARTITIONS):
        assert reading.numbers(partition) == list(range(partition, 4000, PARTITIONS))


async def test_fetches_are_held_long_while_nothing_comes_and_briefly_while_records_do(
    producer: KafkaProducer, place: Place, reading: Reading, lives: list[FaustWorker]
):
    waits: list[int] = []

    def watch(inner: Any) -> None:
        send = inner._client.send

        async def watched(node_id: int, request: Any, **more: Any) -> Any:
            if isinstance(request, FetchRequest):
                waits.append(request._max_wait_ms)
            return await send(node_id, request, **more)

        inner._client.send = watched

    async with reading.at(place):
        await producer.send(numbered(place.topic, range(4)))
        await reading.until_took(range(4))
        await in_its_thread(lives[0], watch)
        await until(lambda: waits[-1:] == [1000 * IDLE_FETCH_WAIT], "a fetch that the broker may hold long")
        waits.clear()
        await producer.send(numbered(place.topic, range(4, 8)))
        await reading.until_took(range(8))
        await until(lambda: 1000 * FETCH_WAIT in waits, "a fetch that the broker answers soon")


async def test_a_record_arrives_with_everything_it_was_sent_with(
    producer: KafkaProducer, place: Place, reading: Reading
):
    headers = (("a44-seq", b"7"), ("other", b"\xff"))
    await producer.send([Outgoing(place.topic, b"key", b"1", headers, 2)])
    async with reading.at(place):
        await reading.until_took([1])
    record = reading.records[0]
    assert (record.topic, record.partition, record.offset, record.key) == (place.topic, 2, 0, b"key")
    assert record.headers == headers
    assert record.timestamp_ms > 1_700_000_000_000


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_records_that_a_producer_has_compressed_are_read(compression: str, place: Place, reading: Reading):
    foreign = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap, "compression.type": compression})
    for number in range(100):
        foreign.produce(place.topic, str(number).encode(), b"k", number % PARTITIONS)
    assert await asyncio.to_thread(foreign.flush, 10) == 0
    async with reading.at(place):
        await reading.until_took(range(100))


async def test_without_positions_the_next_life_goes_on_behind_what_was_durable(
    producer: KafkaProducer, place: Place, reading: Reading
):
    await producer.send(numbered(place.topic, range(100)))
    async with reading.at(place):
        await reading.until_took(range(100))
    again = Reading()
    await producer.send(numbered(place.topic, range(100, 120)))
    async with again.at(place):
        await again.until_took(range(100, 120))
    assert sorted(again.numbers()) == list(range(100, 120))


async def test_d24_with_positions_they_decide_and_not_what_kafka_was_told(
    producer: KafkaProducer, place: Place, reading: Reading, admin: KafkaAdmin
):
    await producer.send(numbered(place.topic, range(40)))
    async with reading.at(place, Kept()):
        await reading.until_took(range(40))
    kept = Kept({0: 3, 1: 10, 2: 0})
    again = Reading()
    async with again.at(place, kept):
        await again.until_took([*range(12, 40, PARTITIONS), *range(2, 40, PARTITIONS), *range(3, 40, PARTITIONS)])
    assert again.numbers(0) == list(range(12, 40, PARTITIONS))
    assert again.numbers(1) == []
    assert again.numbers(2) == list(range(2, 40, PARTITIONS))
    ids = await admin.topic_ids([place.topic])
    assert kept.asked == [(ids[place.topic], frozenset(range(PARTITIONS)))]


async def test_d24_offsets_that_the_broker_has_forgotten_change_nothing(
    producer: KafkaProducer, place: Place, reading: Reading, admin: KafkaAdmin
):
    kept = Kept()
    reading.handler = kept.keep
    await producer.send(numbered(place.topic, range(40)))
    async with reading.at(place, kept):
        await reading.until_took(range(40))
    await admin.forget_group(place.group)
    await producer.send(numbered(place.topic, range(40, 48)))
    again = Reading(kept.keep)
    async with again.at(place, kept):
        await again.until_took(range(40, 48))
    assert sorted(again.numbers()) == list(range(40, 48))


async def test_positions_that_cannot_be_asked_yet_are_waited_for(
    producer: KafkaProducer, place: Place, reading: Reading
):
    class AwayAtFirst(Kept):
        tries = 0

        async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
            self.tries += 1
            if self.tries < 4:
                raise Unavailable("E_UNAVAILABLE", "Postgres is away")
            return await super().positions(topic, topic_id, partitions)

    await producer.send(numbered(place.topic, range(8)))
    async with reading.at(place, AwayAtFirst({0: 1})):
        await reading.until_took(range(1, 4))
    assert 0 not in reading.numbers()
    phases = [state.phase for state in reading.states]
    assert phases[:4] == [Phase.RETRYING] * 3 + [Phase.ASSIGNED]


async def test_d09_nothing_passes_a_record_whose_handler_fails_and_it_comes_again_in_order(
    producer: KafkaProducer, place: Place, reading: Reading
):
    offered: list[list[int]] = []

    async def refuse_at_first(records: Sequence[Record]) -> None:
        offered.append([int(record.value or b"") for record in records])
        if len(offered) < 4:
            raise Unavailable("E_UNAVAILABLE", "Postgres is away")

    reading.handler = refuse_at_first
    await producer.send(numbered(place.topic, range(20)))
    async with reading.at(place):
        await until(lambda: len(offered) > 1, "a second try")
        await producer.send(numbered(place.topic, range(20, 40)))
        await reading.until_took(range(40))
    assert offered[0] == offered[1] == offered[2] == offered[3]
    for partition in range(PARTITIONS):
        assert reading.numbers(partition) == list(range(partition, 40, PARTITIONS))
    retrying = [state for state in reading.states if state.phase is Phase.RETRYING]
    assert retrying[0].reason == "Postgres is away"


async def test_any_other_error_of_the_handler_ends_the_consumer_and_is_raised(
    producer: KafkaProducer, place: Place, reading: Reading
):
    async def broken(records: Sequence[Record]) -> None:
        raise ZeroDivisionError(len(records))

    await producer.send(numbered(place.topic, range(3)))
    reading.handler = broken
    with pytest.raises(ZeroDivisionError):
        async with reading.at(place) as task:
            await asyncio.wait([task], timeout=30)
    whole = Reading()
    async with whole.at(place):
        await whole.until_took(range(3))


async def test_d04_a_second_consumer_takes_its_share_and_gives_it_back_and_nothing_is_handled_twice(
    producer: KafkaProducer, place: Place, reading: Reading
):
    kept = Kept()
    other = Reading(kept.keep)
    reading.handler = kept.keep
    await producer.send(numbered(place.topic, range(200)))
    async with reading.at(place, kept, client="one"):
        await reading.until_reads(PARTITIONS)
        await producer.send(numbered(place.topic, range(200, 400)))
        async with other.at(place, kept, client="two"):
            await reading.until_reads(PARTITIONS // 2)
            await other.until_reads(PARTITIONS // 2)
            assert not reading.partitions() & other.partitions()
            await producer.send(numbered(place.topic, range(400, 600)))
            await until(lambda: set(reading.numbers()) | set(other.numbers()) >= set(range(600)), "all taken")
        await reading.until_reads(PARTITIONS)
        await producer.send(numbered(place.topic, range(600, 640)))
        await reading.until_took(range(600, 640))
    assert other.numbers()
    assert sorted(reading.numbers() + other.numbers()) == list(range(640))


async def test_a_rebalance_while_the_handler_is_not_able_loses_nothing(
    producer: KafkaProducer, place: Place, reading: Reading
):
    able = asyncio.Event()

    async def wait_for_postgres(_: Sequence[Record]) -> None:
        if not able.is_set():
            raise Unavailable("E_UNAVAILABLE", "Postgres is away")

    other = Reading(wait_for_postgres)
    reading.handler = wait_for_postgres
    await producer.send(numbered(place.topic, range(100)))
    async with reading.at(place, client="one"):
        await until(lambda: any(s.phase is Phase.RETRYING for s in reading.states), "refused")
        async with other.at(place, client="two"):
            await other.until_reads(PARTITIONS // 2)
            able.set()
            await until(lambda: set(reading.numbers()) | set(other.numbers()) >= set(range(100)), "all taken")


async def test_a_topic_that_is_not_there_yet_is_waited_for(
    producer: KafkaProducer, place: Place, reading: Reading, admin: KafkaAdmin
):
    place.topic = f"{place.topic}-late"
    async with reading.at(place):
        await until(lambda: any(s.phase is Phase.WAITING for s in reading.states), "told that it waits")
        assert "does not exist" in reading.states[0].reason
        await admin.ensure_topics([spec_of(place.topic)])
        await producer.send(numbered(place.topic, range(4)))
        await reading.until_took(range(4))


async def test_a_topic_made_again_is_read_from_its_beginning(
    producer: KafkaProducer, place: Place, reading: Reading, admin: KafkaAdmin
):
    kept = Kept()
    kept.topic_id = (await admin.topic_ids([place.topic]))[place.topic]
    await producer.send(numbered(place.topic, range(40)))
    async with reading.at(place, kept):
        await reading.until_took(range(40))
        kept.offsets = dict.fromkeys(range(PARTITIONS), 10)
        await delete_topic(place)
        await until(lambda: made_again(admin, place), "the topic made again")
        await until(lambda: written(producer, place, range(100, 140)), "written to the new topic")
        await reading.until_took(range(100, 140))


async def test_a_topic_that_is_gone_is_not_made_by_reading_it(place: Place, reading: Reading, admin: KafkaAdmin):
    async with reading.at(place):
        await reading.until_reads(PARTITIONS)
        await delete_topic(place)
        await until(lambda: any(s.phase is Phase.WAITING for s in reading.states), "noticed that it is gone")
        assert await admin.topic_ids([place.topic]) == {}


async def test_a_stopped_consumer_leaves_at_once_and_the_next_has_not_to_wait_for_its_session(
    place: Place, reading: Reading
):
    place.session_seconds, place.join_seconds = 12.0, 60.0  # to join an empty group takes half a session
    async with reading.at(place):
        await reading.until_reads(PARTITIONS)
    loop = asyncio.get_running_loop()
    began = loop.time()
    again = Reading()
    async with again.at(place):
        await again.until_reads(PARTITIONS, 60)
    assert loop.time() - began < place.session_seconds - 0.5  # a member that had not left would be waited for


async def test_nothing_of_the_process_is_touched(
    place: Place, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    before = (sys.stdout, sys.stderr, signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    listening = listening_sockets()
    async with reading.at(place):
        await reading.until_reads(PARTITIONS)
        assert (sys.stdout, sys.stderr, signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        assert (logging.getLogger().handlers, logging.getLogger().level) == (handlers, level)
        assert listening_sockets() == listening
    assert [*tmp_path.glob("*")] == []  # noqa: ASYNC240 - an empty folder of our own


def listening_sockets() -> set[str]:
    """Inodes of the TCP sockets on which this process listens (empty where the system has no /proc)."""
    own = set()
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            own.add(str(entry.readlink()))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        file = Path("/proc/self/net") / table
        for line in file.read_text().splitlines()[1:] if file.exists() else ():
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[9])
    return found


async def delete_topic(place: Place) -> None:
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": place.bootstrap})
    await asyncio.wrap_future(client.delete_topics([place.topic])[place.topic])


async def made_again(admin: KafkaAdmin, place: Place) -> bool:
    """Apache Kafka deletes in the background: the old topic may still stand in the way."""
    return await admin.ensure_topics([spec_of(place.topic)]) == [place.topic]


async def written(producer: KafkaProducer, place: Place, numbers: Sequence[int]) -> bool:
    return not any(isinstance(answer, Unavailable) for answer in await producer.send(numbered(place.topic, numbers)))
