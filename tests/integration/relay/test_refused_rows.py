"""A row that the broker will never take becomes a dead letter and stalls nobody."""

import os
from typing import cast

import pytest
from structlog.testing import capture_logs

from processors.adapters.kafka.partitioner import partition_of
from processors.ports.relay import Progress, RelayStore
from schemas.errors import Unavailable
from tests.integration.relay.conftest import PARTITIONS, Outbox, Stage
from tests.support.waiting import until

# The embedded broker takes what the client sends; the client itself refuses what no broker would take.
TOO_LARGE = 1_500_000 if os.environ.get("A44_TEST_BROKER") == "apache" else 9_000_000
OTHER = next(key for key in "abcdefgh" if partition_of(key.encode(), PARTITIONS) != partition_of(b"k", PARTITIONS))


async def put_large(outbox: Outbox, key: str = "k") -> None:
    await outbox.conn.execute(
        "insert into automation.outbox (topic, partition_key, value)"
        " values (%s, %s, convert_to(repeat('x', %s), 'UTF8'))",
        (outbox.topic, key, TOO_LARGE),
    )


async def test_a20_a_row_that_is_too_large_becomes_a_dead_letter_and_the_rows_behind_it_go_out(stage: Stage) -> None:
    async with stage.writer() as outbox:
        async with outbox.conn.transaction():
            await outbox.put("before")
            await put_large(outbox)
            await outbox.put("behind")
            await outbox.put("elsewhere", key=OTHER)
            await put_large(outbox, OTHER)
            await outbox.put("elsewhere too", key=OTHER)
        with capture_logs() as logs:
            async with stage.relay():
                await stage.until_published("behind", "elsewhere too")
                await until(outbox.is_kept, "the cursor is behind all rows")
        records = await stage.published()
        rows = await outbox.conn.execute(
            "select queue_id, reason, error_code, source_topic, length(raw), summary from automation.dead_letters"
        )
        letters = await rows.fetchall()
    unique = {(record.key, record.seq, record.value) for record in records}
    assert unique == {("k", 1, "before"), ("k", 2, "behind"), (OTHER, 1, "elsewhere"), (OTHER, 2, "elsewhere too")}
    assert [letter[:5] for letter in letters] == [
        ("relay", "permanent_error", "E_RECORD_TOO_LARGE", stage.topic, TOO_LARGE)
    ] * 2
    assert "max.message.bytes" in letters[0][5]
    told = [line for line in logs if line["event"] == "dead_letter"]
    assert [(line["log_level"], line["code"]) for line in told] == [("error", "E_RECORD_TOO_LARGE")] * 2


@pytest.mark.parametrize("times", [1, 2])
async def test_a_row_that_is_too_large_stands_alone_in_the_outbox(stage: Stage, times: int) -> None:
    async with stage.writer() as outbox, stage.relay():
        for _ in range(times):
            await put_large(outbox)
            await outbox.wake()
        await until(lambda: letters_are(outbox, times), "the dead letters are there")
        await outbox.put("next")
        records = await stage.until_published("next")
    assert [(record.value, record.seq) for record in records] == [("next", 1)]


class LosesOneAnswer:
    """The real store, which keeps a batch with dead letters and then says that it does not know."""

    def __init__(self) -> None:
        self.real: RelayStore | None = None
        self.has_lost = False

    def wrap(self, real: RelayStore) -> RelayStore:
        self.real = real
        return cast("RelayStore", self)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    async def advance(self, epoch: int, progress: Progress) -> bool:
        assert self.real is not None
        is_kept = await self.real.advance(epoch, progress)
        if progress.dead and not self.has_lost:
            self.has_lost = True
            raise Unavailable("E_UNAVAILABLE", "the answer was lost")
        return is_kept


async def test_a_row_that_was_buried_without_an_answer_is_not_buried_again(stage: Stage) -> None:
    store = LosesOneAnswer()
    async with stage.writer() as outbox, stage.relay(wrap_store=store.wrap):
        await put_large(outbox)
        await outbox.wake()
        await until(lambda: letters_are(outbox, 1), "the dead letter is there")
        await outbox.put("next")
        records = await stage.until_published("next")
        assert await letters_are(outbox, 1)
    assert store.has_lost
    assert [(record.value, record.seq) for record in records] == [("next", 1)]


async def letters_are(outbox: Outbox, count: int) -> bool:
    return bool(await outbox.value("select count(*) from automation.dead_letters") == count)
