"""The scheduler's upkeep: a part that fails keeps no other from being done, and none is in the way of the looks."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres import partitions
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.ports.schedule import Outlook
from processors.scheduler.scheduler import Scheduler
from schemas.errors import Unavailable
from tests.integration.log.lab import Lab
from tests.integration.log.test_log_schedule import Told
from tests.support.waiting import until


class Failing(PostgresSchedule):
    """The real one, whose sweeps and recounts fail."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.looks = 0
        self.tried: list[str] = []

    async def look(self) -> Outlook:
        self.looks += 1
        return await super().look()

    async def recount(self) -> None:
        self.tried.append("recount")
        raise Unavailable("E_UNAVAILABLE", "made up")

    async def sweep(self) -> None:
        self.tried.append("sweep")
        raise Unavailable("E_UNAVAILABLE", "made up")


async def test_an_upkeep_that_fails_is_tried_once_a_minute_and_each_part_of_it(lab: Lab) -> None:
    schedule, stop = Failing(lab.dsn), asyncio.Event()
    scheduler = Scheduler(schedule, Told())
    running = asyncio.create_task(scheduler.run(stop))

    async def has_looked() -> bool:
        scheduler.wake()
        return schedule.looks >= 5

    await until(has_looked, "it looks on")
    stop.set()
    await running
    await schedule.aclose()
    assert schedule.tried == ["recount", "sweep"]


class Lasting(Failing):
    """A sweep that does not end."""

    async def sweep(self) -> None:
        self.tried.append("sweep")
        await asyncio.Event().wait()


async def test_no_look_waits_for_a_sweep(lab: Lab) -> None:
    schedule, stop = Lasting(lab.dsn), asyncio.Event()
    scheduler = Scheduler(schedule, Told())
    running = asyncio.create_task(scheduler.run(stop))
    await until(lambda: "sweep" in schedule.tried, "it sweeps")
    before = schedule.looks

    async def has_looked() -> bool:
        scheduler.wake()
        return schedule.looks >= before + 3

    await until(has_looked, "it looks on")
    stop.set()
    await asyncio.wait_for(running, 10)
    await schedule.aclose()


async def test_a_sweep_goes_on_until_nothing_is_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.adapters.postgres.schedule.MOST", 2)
    await lab.rows(
        "insert into automation.lanes (project_id, queue_id, lane, head_seq, tail_seq)"
        " select 'p', 'q', n::text, 1, 1 from generate_series(1, 101) n"
    )
    await lab.schedule().sweep()
    assert await lab.value("select count(*) from automation.lanes") == 0


async def test_a_day_that_another_process_drops_at_the_same_time_is_no_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = f"{datetime.now(UTC) - timedelta(days=40):%Y%m%d}"
    await lab.rows(
        "select automation.attach_partition('outbox', %s, (current_date - 40)::text, (current_date - 39)::text)", digits
    )
    looked, is_unsent = [], partitions._is_unsent

    async def and_another_is_quicker(conn: AsyncConnection[TupleRow], name: str) -> bool:
        unsent = await is_unsent(conn, name)
        looked.append(name)
        await lab.rows(f"drop table automation.{name}")
        return unsent

    monkeypatch.setattr(partitions, "_is_unsent", and_another_is_quicker)
    conn = await connect(lab.dsn, "partitions")
    async with conn:
        assert await partitions.drop_sent_days(conn, 7) == 0
    assert looked == [f"outbox_{digits}"]
