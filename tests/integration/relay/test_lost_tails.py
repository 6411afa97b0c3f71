"""Records that the broker lost at the end of a partition, where no later one shows that they are missing."""

from collections.abc import Sequence

import pytest

from processors.adapters.kafka.partitioner import partition_of
from processors.ports.relay import RelayStore, Unread
from processors.ports.streams import Delivery, Outgoing
from schemas.errors import Refused, Unavailable
from tests.integration.relay.conftest import PARTITIONS, Outbox, Stage, Wrapped
from tests.support.waiting import until

PLACE = partition_of(b"k", PARTITIONS)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.relay.lost_tails.LOOK_SECONDS", 0.2)


class Losing(Wrapped):
    """Acknowledges without keeping, for as long as it is told to."""

    loses = False

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        return [Delivery(PLACE, 0) for _ in batch] if self.loses else await super().send(batch)


class Counting:
    """Counts the looks for what is unread."""

    def __init__(self) -> None:
        self.looks = 0

    def wrap(self, store: RelayStore) -> RelayStore:
        asked = store.unread

        async def unread() -> dict[tuple[str, int], Unread]:
            self.looks += 1
            return await asked()

        store.unread = unread  # type: ignore[method-assign]
        return store


async def ingest_is_at(stage: Stage, outbox: Outbox, offset: int, seq: int) -> None:
    topic_id = (await stage.admin.topic_ids([stage.topic]))[stage.topic]
    await outbox.conn.execute(
        "insert into automation.ingest_progress (topic, partition, topic_id, next_offset, seq, seen)"
        " values (%s, %s, %s, %s, %s, %s)",
        (stage.topic, PLACE, topic_id, offset, seq, seq),
    )


async def test_what_the_broker_lost_at_the_end_goes_out_again(stage: Stage) -> None:
    losing = Losing()
    async with stage.writer() as outbox, stage.relay(wrap=losing.wrap):
        await outbox.put("a", "b")
        await stage.until_published("a", "b")
        losing.loses = True
        await outbox.put("c", "d")
        query = "select count(*) = 1 from automation.relay_partitions where topic = %s and seq = 4"

        async def is_given() -> bool:
            return bool(await outbox.value(query, stage.topic))

        await until(is_given, "numbers are given for what is lost")
        losing.loses = False
        await ingest_is_at(stage, outbox, offset=2, seq=2)
        records = await stage.until_published("c", "d")
    (before, first), (after, second) = [(record.value, record.seq) for record in records[-2:]]
    assert (before, after, second) == ("c", "d", first + 1)
    assert stage.measures.value("relay_rewinds_total") >= 1


async def test_an_ingest_that_is_only_slow_makes_nobody_go_back(stage: Stage) -> None:
    counting = Counting()
    async with stage.writer() as outbox, stage.relay(wrap_store=counting.wrap):
        for value in ("a", "b", "c"):  # each in a batch of its own: the embedded broker's end tells of batches
            await outbox.put(value)
            await stage.until_published(value)
        await ingest_is_at(stage, outbox, offset=2, seq=2)
        before = counting.looks

        async def has_looked() -> bool:
            await outbox.wake()
            return counting.looks >= before + 6

        await until(has_looked, "it has looked a few times")
    assert stage.measures.value("relay_rewinds_total") == 0


async def test_an_ingest_that_goes_on_makes_nobody_go_back_where_the_end_is_told_too_low(stage: Stage) -> None:
    """As the embedded broker does for a batch of several."""
    counting = Counting()
    async with stage.writer() as outbox, stage.relay(wrap_store=counting.wrap):
        async with outbox.conn.transaction():
            await outbox.put(*(str(number) for number in range(9)))
        await stage.until_published("8")
        for at in range(2, 9):
            await outbox.conn.execute("delete from automation.ingest_progress")
            await ingest_is_at(stage, outbox, offset=at, seq=at)
            before = counting.looks
            await until(lambda: has_looked(outbox, counting, before + 2), "it has looked")  # noqa: B023 - awaited here
    assert stage.measures.value("relay_rewinds_total") == 0


async def has_looked(outbox: Outbox, counting: Counting, looks: int) -> bool:
    await outbox.wake()
    return counting.looks >= looks
