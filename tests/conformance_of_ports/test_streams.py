"""Producer, admin, consumer: order in a partition, ids of topics, polls that come again until they are durable."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from processors.adapters.kafka.partitioner import partition_of
from processors.ports.streams import BatchHandler, Delivery, Later, Outgoing, Positions, Record
from schemas.errors import Unavailable
from tests.conformance_of_ports.topics import PARTITIONS, Streams
from tests.support.waiting import until


class Taken:
    """`refusals` is how often it says that it is not durable."""

    def __init__(self, refusals: int = 0) -> None:
        self.records: list[Record] = []
        self._refusals = refusals

    async def __call__(self, records: Sequence[Record]) -> None:
        if self._refusals:
            self._refusals -= 1
            raise Unavailable("E_UNAVAILABLE", "not now")
        self.records += records

    def values(self) -> list[str]:
        return sorted((record.value or b"").decode() for record in self.records)


class Kept:
    def __init__(self, found: Mapping[int, int]) -> None:
        self.found = found
        self.asked: list[str] = []

    async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
        self.asked.append(topic_id)
        return {p: self.found[p] for p in partitions if p in self.found}


@asynccontextmanager
async def reading(streams: Streams, handler: BatchHandler, positions: Positions | None = None) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(streams.consume(handler, positions, stop))
    try:
        yield
    finally:
        stop.set()
        await task


def records(streams: Streams, count: int, first: int = 0) -> list[Outgoing]:
    return [
        Outgoing(streams.spec.name, b"k%d" % (n % 7), b"%03d" % n, (("n", b"%d" % n),))
        for n in range(first, first + count)
    ]


async def test_a_topic_is_made_once_and_keeps_its_id(streams: Streams) -> None:
    assert await streams.admin.topic_ids([streams.spec.name]) == {}
    assert await streams.admin.ensure_topics([streams.spec]) == [streams.spec.name]
    ids = await streams.admin.topic_ids([streams.spec.name])
    assert await streams.admin.ensure_topics([streams.spec]) == []
    assert await streams.admin.topic_ids([streams.spec.name, "unheard-of"]) == ids
    assert await streams.admin.partition_counts([streams.spec.name]) == {streams.spec.name: PARTITIONS}


async def test_a_topic_made_again_has_another_id(streams: Streams) -> None:
    await streams.admin.ensure_topics([streams.spec])
    before = await streams.admin.topic_ids([streams.spec.name])
    await streams.delete()

    async def is_made_again() -> bool:
        await streams.admin.ensure_topics([streams.spec])
        found = await streams.admin.topic_ids([streams.spec.name])
        return bool(found) and found != before

    await until(is_made_again, "the topic has another id", 30)


async def test_answers_stand_in_the_order_of_the_batch_and_keys_choose_partitions_as_java_does(
    streams: Streams,
) -> None:
    await streams.admin.ensure_topics([streams.spec])
    batch = records(streams, 40)
    answers = await streams.producer.send(batch)
    places = [(answer.partition, answer.offset) for answer in answers if isinstance(answer, Delivery)]
    assert [partition for partition, _ in places] == [partition_of(one.key, PARTITIONS) for one in batch]
    for partition in range(PARTITIONS):
        offsets = [offset for at, offset in places if at == partition]
        assert offsets == list(range(len(offsets)))


async def test_a_reader_gets_everything_in_the_order_of_each_partition(streams: Streams) -> None:
    await streams.admin.ensure_topics([streams.spec])
    await streams.producer.send(records(streams, 60))
    taken = Taken()
    async with reading(streams, taken):
        await until(lambda: len(taken.records) >= 60, "everything is read", 60)
    assert taken.values() == [f"{n:03}" for n in range(60)]
    for partition in range(PARTITIONS):
        offsets = [record.offset for record in taken.records if record.partition == partition]
        assert offsets == list(range(len(offsets)))
    assert all(record.headers == (("n", b"%d" % int(record.value or b"")),) for record in taken.records)


async def test_what_was_not_durable_comes_again(streams: Streams) -> None:
    await streams.admin.ensure_topics([streams.spec])
    await streams.producer.send(records(streams, 10))
    taken = Taken(refusals=3)
    async with reading(streams, taken):
        await until(lambda: len(taken.records) >= 10, "everything is read", 60)
    assert taken.values() == [f"{n:03}" for n in range(10)]


class Putting:
    """Wants what comes from a record on later, as often as it is told, and notes what it saw before that."""

    def __init__(self, partition: int, offset: int, times: int) -> None:
        self.place = (partition, offset)
        self.left = times
        self.taken: list[Record] = []
        self.others_meanwhile = 0

    async def __call__(self, records: Sequence[Record]) -> Mapping[int, Later]:
        partition, offset = self.place
        later: dict[int, Later] = {}
        for record in records:
            if record.partition == partition and record.offset >= offset and self.left:
                later[partition] = Later(offset, 0.5)
            else:
                self.taken.append(record)
                self.others_meanwhile += record.partition != partition
        self.left -= bool(later)
        return later


async def test_a_partition_that_is_wanted_later_goes_on_where_it_was_told_and_others_do_not_wait(
    streams: Streams,
) -> None:
    await streams.admin.ensure_topics([streams.spec])
    putting = Putting(1, 3, times=3)
    batch = [Outgoing(streams.spec.name, b"k", b"%03d" % n, (), n % PARTITIONS) for n in range(40)]
    await streams.producer.send(batch)
    async with reading(streams, putting, Kept({})):
        await until(lambda: len(putting.taken) >= 40, "everything is taken", 60)
    assert putting.left == 0
    for partition in range(PARTITIONS):
        assert [one.offset for one in putting.taken if one.partition == partition] == list(range(10))
    assert {one.partition for one in putting.taken[-7:]} == {1}  # all others were taken while it waited


async def test_partitions_that_wait_are_read_by_whoever_gets_them(streams: Streams) -> None:
    """The group is shared out anew, twice, while all of its partitions are left alone."""
    await streams.admin.ensure_topics([streams.spec])
    is_time, taken = asyncio.Event(), set[bytes]()

    def waiting(asked: set[int]) -> BatchHandler:
        async def wait_until_it_is_time(records: Sequence[Record]) -> Mapping[int, Later]:
            if not is_time.is_set():
                asked.update(record.partition for record in records)
                return {record.partition: Later(record.offset, 0.2) for record in reversed(records)}
            taken.update(record.value or b"" for record in records)
            return {}

        return wait_until_it_is_time

    await streams.producer.send([Outgoing(streams.spec.name, b"k", b"%03d" % n, (), n % PARTITIONS) for n in range(40)])
    first, second = set[int](), set[int]()
    async with reading(streams, waiting(first), Kept({})):
        await until(lambda: len(first) == PARTITIONS, "all partitions wait", 60)
        async with reading(streams, waiting(second), Kept({})):
            await until(lambda: bool(second), "another has some of them", 60)
        is_time.set()
        await until(lambda: len(taken) == 40, "everything is taken", 60)


async def test_positions_decide_where_a_reader_begins(streams: Streams) -> None:
    await streams.admin.ensure_topics([streams.spec])
    batch = [Outgoing(streams.spec.name, b"k", b"%03d" % n, (), n % PARTITIONS) for n in range(40)]
    await streams.producer.send(batch)
    taken, kept = Taken(), Kept({0: 9, 1: 10, 2: 8})
    async with reading(streams, taken, kept):
        await until(lambda: len(taken.records) >= 13, "the rest is read", 60)
    assert taken.values() == sorted(["036", "034", "038"] + [f"{n:03}" for n in range(40) if n % PARTITIONS == 3])
    assert set(kept.asked) == set((await streams.admin.topic_ids([streams.spec.name])).values())


async def test_two_readers_share_the_partitions_and_miss_nothing(streams: Streams) -> None:
    await streams.admin.ensure_topics([streams.spec])
    one, two = Taken(), Taken()
    async with reading(streams, one):
        await streams.producer.send(records(streams, 10))
        await until(lambda: len(one.records) >= 10, "the first reader has the first records", 60)
        async with reading(streams, two):

            async def both_read() -> bool:
                await streams.producer.send(records(streams, 28, 100))
                return bool(two.records) and len(one.records) > 10

            await until(both_read, "both readers read", 60)
        await streams.producer.send(records(streams, 28, 500))
        expected = {f"{n:03}" for n in range(500, 528)}
        await until(lambda: expected <= set(one.values() + two.values()), "the last records are read", 60)


async def test_a_topic_made_again_is_read_from_its_beginning(streams: Streams) -> None:
    await streams.admin.ensure_topics([streams.spec])
    before = await streams.admin.topic_ids([streams.spec.name])
    await streams.producer.send(records(streams, 10))
    taken, kept = Taken(), Kept({})
    async with reading(streams, taken, kept):
        await until(lambda: len(taken.records) >= 10, "the first life is read", 60)
        await streams.delete()

        async def is_made_again() -> bool:
            await streams.admin.ensure_topics([streams.spec])
            found = await streams.admin.topic_ids([streams.spec.name])
            return bool(found) and found != before

        await until(is_made_again, "the topic has another id", 30)

        async def is_written() -> bool:
            return all(isinstance(one, Delivery) for one in await streams.producer.send(records(streams, 10, 700)))

        await until(is_written, "records are written", 30)
        await until(lambda: {f"{n:03}" for n in range(700, 710)} <= set(taken.values()), "they are read", 60)
    assert len(set(kept.asked)) == 2
