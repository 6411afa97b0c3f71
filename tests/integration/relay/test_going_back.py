"""The relay goes back to where ingest misses numbers: no further than it must, and under the numbers of before."""

from collections.abc import Sequence

from processors.adapters.kafka.partitioner import partition_of
from processors.adapters.postgres.relay_store import MOST_CHECKPOINTS, open_relay_store
from processors.ports.relay import Cursor, Progress
from tests.integration.relay.conftest import PARTITIONS, Outbox, Published, Stage
from tests.support.waiting import until

PLACE = partition_of(b"k", PARTITIONS)


def told(records: Sequence[Published]) -> list[tuple[str, int]]:
    return [(record.value, record.seq) for record in records if record.key == "k"]


async def test_a_request_brings_the_same_rows_again_under_the_same_numbers(stage: Stage) -> None:
    async with stage.relay(), stage.writer() as outbox:
        await outbox.put("a", "b", "c")
        await outbox.ingest_has(PLACE, 3)
        await until(lambda: outbox.has_checkpoint(3), "a checkpoint that ingest has passed")
        await outbox.put("d", "e")
        await until(lambda: outbox.has_checkpoint(5), "a later one, which it has not")
        await outbox.put("f")
        await stage.until_published("f")
        await outbox.ask_for(PLACE, 4)
        await until(outbox.is_answered, "the request is answered")
        await outbox.put("g")
        records = await stage.until_published("g")
        assert await outbox.value("select highest from automation.relay_partitions where topic = %s", stage.topic) == 7
    again = [("d", 4), ("e", 5), ("f", 6)]
    assert told(records) == [("a", 1), ("b", 2), ("c", 3), *again, *again, ("g", 7)]
    assert stage.measures.value("relay_rewinds_total") == 1


async def test_without_a_checkpoint_everything_goes_out_again_and_numbers_follow_what_ingest_has(stage: Stage) -> None:
    async with stage.writer() as outbox:
        await outbox.put("a", "b")
        async with stage.relay():
            await stage.until_published("a", "b")
        await outbox.conn.execute("delete from automation.relay_checkpoints")
        await outbox.ingest_has(PLACE, 1)
        await outbox.ask_for(PLACE, 2)
        async with stage.relay():
            await until(outbox.is_answered, "the request is answered")
            await outbox.put("c")
            records = await stage.until_published("c")
    assert told(records) == [("a", 1), ("b", 2), ("a", 2), ("b", 3), ("c", 4)]


async def test_a_topic_that_only_ingest_reads_is_filled_again_from_where_ingest_is(stage: Stage) -> None:
    async with stage.relay(), stage.writer() as outbox:
        await outbox.put("a", "b", "c")
        await outbox.ingest_has(PLACE, 3)
        await until(lambda: outbox.has_checkpoint(3), "a checkpoint that ingest has passed")
        await outbox.put("d")
        await stage.until_published("d")
        await stage.lose_topic()
        await outbox.ask_for(PLACE, 4)  # ingest sees a number behind the loss before the relay looks at the topic
        await outbox.put("e")
        records = await stage.until_published("d", "e")
    fresh = told(records)
    assert fresh[-2:] == [("d", 4), ("e", 5)]
    assert not {"a", "b", "c"} & {value for value, _ in fresh}


async def test_checkpoints_before_the_newest_one_that_ingest_has_passed_are_forgotten(stage: Stage) -> None:
    async with stage.writer() as outbox, open_relay_store(stage.dsn) as store:
        hold = await store.take("one")
        assert hold is not None
        await outbox.ingest_has(0, 2)
        for number in range(1, 2 * MOST_CHECKPOINTS):
            assert await store.advance(hold.epoch, Progress(Cursor(10, number), {(stage.topic, 0): number}))
            assert await store.renew(hold.epoch) is not None
        kept = await numbers_of_checkpoints(outbox)
        assert kept == list(range(2, MOST_CHECKPOINTS + 2))
        await outbox.ingest_has(0, 2 * MOST_CHECKPOINTS)
        assert await store.renew(hold.epoch) is not None
        assert await store.renew(hold.epoch) is not None
        assert await numbers_of_checkpoints(outbox) == [MOST_CHECKPOINTS + 1, 2 * MOST_CHECKPOINTS - 1]


async def test_a_checkpoint_counts_every_partition_of_the_topic(stage: Stage) -> None:
    async with stage.writer() as outbox, open_relay_store(stage.dsn) as store:
        hold = await store.take("one")
        assert hold is not None
        await outbox.ingest_has(0, 5)
        await outbox.ingest_has(1, 1)
        for number in (1, 2):
            numbers = {(stage.topic, 0): number, (stage.topic, 1): number}
            assert await store.advance(hold.epoch, Progress(Cursor(10, number), numbers))
            assert await store.renew(hold.epoch) is not None
        assert await store.go_back(hold.epoch, [stage.topic])
        again = await store.take("one")
        assert again is not None
        assert again.cursor == Cursor(10, 1)
        assert await store.numbers() == {(stage.topic, 0): 1, (stage.topic, 1): 1}
        assert await numbers_of_checkpoints(outbox) == [1, 1]  # one that lies ahead would be a way to skip rows


async def test_a_request_is_heard_by_the_relay_that_begins_next(stage: Stage) -> None:
    async with stage.writer() as outbox:
        await outbox.put("a")
        async with stage.relay("first"):
            await stage.until_published("a")
        await outbox.ingest_has(PLACE, 0)
        await outbox.ask_for(PLACE, 1)
        async with stage.relay("second"):
            await until(outbox.is_answered, "the request is answered")
        assert told(await stage.published()) == [("a", 1), ("a", 1)]


async def numbers_of_checkpoints(outbox: Outbox) -> list[int]:
    rows = await outbox.conn.execute(
        "select seq from automation.relay_checkpoints order by cursor_xid, cursor_id, partition"
    )
    return [seq for (seq,) in await rows.fetchall()]
