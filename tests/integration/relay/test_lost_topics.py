"""A topic that lost its records gets them again, from the outbox."""

from collections.abc import Sequence

import pytest

from tests.integration.relay.conftest import Published, Stage
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def often_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.relay.topics_in_use._FRESH_SECONDS", 0.3)


def in_order(records: list[Published]) -> list[str]:
    return [record.value for record in records]


async def made_again(stage: Stage) -> bool:
    """Apache Kafka deletes in the background: the old topic may still stand in the way."""
    return await stage.admin.ensure_topics([stage.spec]) == [stage.topic]


async def test_what_a_lost_topic_held_is_published_again(stage: Stage) -> None:
    async with stage.relay(), stage.writer() as outbox:
        await outbox.put("a", "b")
        await outbox.wake()
        await stage.until_published("a", "b")
        await stage.lose_topic()
        await stage.until_published("a", "b")
        await outbox.put("c")
        await outbox.wake()
        records = await stage.until_published("c")
    assert in_order(records) == ["a", "b", "c"]
    assert [record.seq for record in records] == [3, 4, 5]


async def test_a_loss_while_no_relay_ran_is_known_by_the_topic_that_ingest_has_read(stage: Stage) -> None:
    async with stage.writer() as outbox:
        await outbox.put("a")
        async with stage.relay("first"):
            await stage.until_published("a")
        known = (await stage.admin.topic_ids([stage.topic]))[stage.topic]
        await outbox.conn.execute(
            "insert into automation.ingest_progress (topic, partition, topic_id, next_offset) values (%s, 0, %s, 1)",
            (stage.topic, known),
        )
        await stage.lose_topic()
        await until(lambda: made_again(stage), "the topic made again")
        await outbox.put("b")
        async with stage.relay("second"):
            assert in_order(await stage.until_published("a", "b")) == ["a", "b"]


async def test_the_topic_that_ingest_reads_is_no_loss(stage: Stage) -> None:
    async with stage.writer() as outbox:
        await outbox.put("a")
        async with stage.relay("first"):
            await stage.until_published("a")
        known = (await stage.admin.topic_ids([stage.topic]))[stage.topic]
        await outbox.conn.execute(
            "insert into automation.ingest_progress (topic, partition, topic_id, next_offset)"
            " values (%s, 0, %s, 1), (%s, 1, 'of an idle partition', 1)",
            (stage.topic, known, stage.topic),
        )
        await outbox.put("b")
        async with stage.relay("second"):
            assert in_order(await stage.until_published("b")) == ["a", "b"]


async def test_a_topic_whose_new_id_is_told_late_is_filled_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that comes back tells of a topic's partitions before its id: the first look sees no loss."""
    asks, topic_ids = 0, stage.admin.topic_ids

    async def late(topics: Sequence[str]) -> dict[str, str]:
        nonlocal asks
        asks += 1
        return {} if asks == 1 else await topic_ids(topics)

    async with stage.writer() as outbox:
        await outbox.put("a", "b")
        async with stage.relay("first"):
            await stage.until_published("a", "b")
        await stage.lose_topic()
        await until(lambda: made_again(stage), "the topic made again")
        await outbox.put("c")
        monkeypatch.setattr(stage.admin, "topic_ids", late)
        async with stage.relay("second"):
            assert in_order(await stage.until_published("c")) == ["a", "b", "c"]
