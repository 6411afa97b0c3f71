"""Rows that nobody told of: a lost wake-up costs a poll, and is counted (case E13)."""

from tests.integration.relay.conftest import Stage
from tests.support.waiting import until


async def test_e13_rows_that_nobody_told_of_are_found_by_the_poll_and_counted(stage: Stage) -> None:
    async with stage.writer() as outbox, stage.relay():
        await outbox.put("first")
        await outbox.wake()
        await stage.until_published("first")
        polls = stage.measures.value("wakeups_total", "poll")
        await outbox.put("second")
        await stage.until_published("second")
        await until(lambda: stage.measures.value("wakeups_total", "poll") == polls + 1, "the poll to be counted")
