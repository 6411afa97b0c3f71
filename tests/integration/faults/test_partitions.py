"""Partitions that lack are made by whoever meets the lack; making them and dropping them is in nobody's way."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

import pytest
import pytest_asyncio

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.partitions import DAYS_AHEAD, keep_partitions
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.adapters.postgres.statements import statements
from processors.ports.door import Outcome
from processors.ports.journal import Batch
from processors.ports.measures import Measures
from schemas.errors import Broken
from tests.integration.faults.arrivals import harvest_of, webhook
from tests.integration.faults.others import transaction
from tests.integration.log.lab import EVENTS, Lab, end_of, entry_of, manual_acceptance, open_lab
from tests.support.waiting import until

PARENTS = ("outbox", "runs_ended", "step_attempts")


@pytest_asyncio.fixture
async def lab(migrated_database: str) -> AsyncIterator[Lab]:
    """On a database of its own: partitions are taken away here."""
    async with open_lab(migrated_database) as opened:
        yield opened


async def partitions(lab: Lab, parent: str) -> list[str]:
    return await lab.column(
        "select inhrelid::regclass::text from pg_inherits where inhparent = ('automation.' || %s)::regclass"
        " and not inhdetachpending order by 1",
        parent,
    )


async def take_all_away(lab: Lab, parent: str) -> None:
    for name in await partitions(lab, parent):
        await lab.rows(f"drop table {name}")


def next_month() -> datetime:
    """Midnight UTC of the first of the next month."""
    return (datetime.now(UTC).replace(day=1) + timedelta(days=32)).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )


async def test_days_are_made_three_weeks_ahead_and_months_three(lab: Lab) -> None:
    measures = Measures()
    await keep_partitions(lab.dsn, 7, measures)
    assert DAYS_AHEAD <= measures.value("partitions_ahead_days", "outbox") <= DAYS_AHEAD + 1
    for parent in ("runs_ended", "step_attempts"):
        assert measures.value("partitions_ahead_days", parent) >= 89


async def test_the_lead_is_counted_to_the_first_gap(lab: Lab) -> None:
    day = (datetime.now(UTC) + timedelta(days=3)).strftime("%Y%m%d")
    await lab.rows(f"alter table automation.outbox detach partition automation.outbox_{day}")
    ahead = await lab.value("select automation.partition_days_ahead('outbox')")
    assert 2 <= ahead <= 3
    measures = Measures()
    await keep_partitions(lab.dsn, 7, measures)  # one that somebody took off is put back
    assert measures.value("partitions_ahead_days", "outbox") > DAYS_AHEAD - 1


async def test_e14_doors_make_the_day_that_is_missing_and_lose_nothing(lab: Lab) -> None:
    door = await lab.door()
    await door.accept(webhook("before"))
    await take_all_away(lab, "outbox")
    items = [webhook(f"order-{n}") for n in range(200)]
    answers = await asyncio.gather(*(door.accept(item) for item in items))
    assert {answer.outcome for answer in answers} == {Outcome.CREATED}
    values = await lab.column("select value from automation.outbox order by xid, id")
    assert [bytes(value) for value in values] == [item.envelope for item in items]
    assert len(await partitions(lab, "outbox")) == 1


async def test_e14_ingest_makes_the_day_that_is_missing(lab: Lab) -> None:
    await lab.queue()
    log = await lab.ingest_log()
    await log.positions(EVENTS, "topic-1", [0])
    await log.commit(harvest_of([first := lab.run(key="same")]))
    await take_all_away(lab, "outbox")
    other = lab.run(key="same")  # another body under the same key is a dead letter, which is announced
    await log.commit(harvest_of([other], offset=1))
    assert await lab.column("select run_id from automation.live_runs") == [first.run_id]
    assert await lab.value("select count(*) from automation.dead_letters") == 1
    assert await lab.value("select count(*) from automation.outbox") == 1


async def test_e14_runs_of_the_first_of_a_month_find_their_partitions_made(lab: Lab) -> None:
    """The last run of a month and the first of the next, at midnight UTC, in one batch; no partition is there."""
    await lab.queue()
    for parent in PARENTS:
        await take_all_away(lab, parent)
    midnight = int(next_month().timestamp() * 1000)
    runs = [lab.run(millis=midnight - 1), lab.run(millis=midnight)]
    door = await lab.door()
    await asyncio.gather(*(door.accept(manual_acceptance(run)) for run in runs))
    journal = await lab.journal()
    claims = await lab.claim(journal)
    await journal.commit(
        Batch(entries=[entry_of(claim, 1) for claim in claims], ends=[end_of(claim) for claim in claims])
    )
    await journal.commit(Batch())
    months = [f"{at:%Y%m}" for at in (next_month() - timedelta(days=1), next_month())]
    for parent in ("runs_ended", "step_attempts"):
        assert await partitions(lab, parent) == [f"automation.{parent}_{month}" for month in months]
        assert await lab.value(f"select count(*) from automation.{parent}") == 2  # noqa: S608
    assert await lab.value("select batch from automation.sessions") == 3  # what was undone is not counted


async def test_e14_two_doors_that_meet_the_lack_at_once_make_one_partition(lab: Lab) -> None:
    doors = [await lab.door() for _ in range(4)]
    await take_all_away(lab, "outbox")
    answers = await asyncio.gather(*(doors[n % 4].accept(webhook(f"order-{n}")) for n in range(100)))
    assert {answer.outcome for answer in answers} == {Outcome.CREATED}
    assert await lab.value("select count(*) from automation.outbox") == 100
    assert len(await partitions(lab, "outbox")) == 1


async def test_a_row_that_breaks_another_rule_is_no_lack_of_a_partition(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run()])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    with pytest.raises(Broken, match="23514"):
        await journal.commit(Batch(ends=[end_of(claim, "nonsense")]))


async def test_a_long_reader_holds_up_neither_the_partition_nor_writers(lab: Lab) -> None:
    door = await lab.door()
    await door.accept(webhook("before"))
    day = (datetime.now(UTC) + timedelta(days=5)).strftime("%Y%m%d")
    await lab.rows(f"drop table automation.outbox_{day}")
    async with transaction(lab, "set transaction isolation level repeatable read", "select from automation.outbox"):
        async with asyncio.timeout(10):
            await keep_partitions(lab.dsn, 7, Measures())
            answer = await door.accept(webhook("meanwhile"))
    assert answer.outcome is Outcome.CREATED
    assert f"automation.outbox_{day}" in await partitions(lab, "outbox")


async def test_a_lock_that_cannot_be_had_is_given_up_and_writers_go_on(lab: Lab) -> None:
    """SHARE UPDATE EXCLUSIVE is what ANALYZE or other DDL hold; the upkeep comes again later."""
    door = await lab.door()
    day = (datetime.now(UTC) + timedelta(days=5)).strftime("%Y%m%d")
    await lab.rows(f"drop table automation.outbox_{day}")
    measures = Measures()
    async with transaction(lab, "lock table automation.outbox in share update exclusive mode"):
        waiting = asyncio.create_task(keep_partitions(lab.dsn, 7, measures))
        await lab.waits_for_lock("a44-partitions")
        async with asyncio.timeout(10):
            assert (await door.accept(webhook("meanwhile"))).outcome is Outcome.CREATED
            await waiting
        assert f"automation.outbox_{day}" not in await partitions(lab, "outbox")
    await keep_partitions(lab.dsn, 7, measures)
    assert f"automation.outbox_{day}" in await partitions(lab, "outbox")


# days of the outbox that are over


async def old_day(lab: Lab, days: int, rows: int = 1000) -> str:
    """A day of the outbox so long ago, with rows."""
    day = (datetime.now(UTC) - timedelta(days=days)).date()
    await lab.rows("select automation.make_partition('outbox', %s)", datetime(day.year, day.month, day.day, tzinfo=UTC))
    await write(lab, day, rows)
    return f"automation.outbox_{day:%Y%m%d}"


async def write(lab: Lab, day: date, rows: int) -> None:
    await lab.rows(
        "insert into automation.outbox (day, topic, partition_key, value)"
        " select %s, 't', n::text, 'x' from generate_series(1, %s) n",
        day,
        rows,
    )


async def send_everything(lab: Lab) -> None:
    await lab.rows(
        "update automation.relay_shards set (cursor_xid, cursor_id)"
        " = (select xid, id from automation.outbox order by xid desc, id desc limit 1)"
    )


async def test_e05_days_that_are_over_and_wholly_sent_are_dropped(lab: Lab) -> None:
    over = [await old_day(lab, days) for days in (9, 10)]
    young = await old_day(lab, 6)
    await send_everything(lab)
    measures = Measures()
    await keep_partitions(lab.dsn, 7, measures)
    left = await partitions(lab, "outbox")
    assert not set(over) & set(left)
    assert young in left
    assert measures.value("partitions_dropped_total", "outbox") == 2
    assert await lab.value("select count(*) from pg_class where relname ~ '^outbox_[0-9]+$'") == len(left)


async def test_e05_a_day_with_one_row_that_was_not_sent_stays(lab: Lab) -> None:
    sent = await old_day(lab, 10)
    await send_everything(lab)
    unsent = await old_day(lab, 9, rows=1)
    await keep_partitions(lab.dsn, 7, Measures())
    left = await partitions(lab, "outbox")
    assert sent not in left
    assert unsent in left
    assert await lab.value("select count(*) from automation.outbox") == 1


async def test_e05_whether_a_day_is_wholly_sent_is_seen_on_a_few_pages(lab: Lab) -> None:
    day = await old_day(lab, 9, rows=20_000)
    await send_everything(lab)
    text = statements("partitions")["holds_unsent"].replace("{day}", day.partition(".")[2])
    conn = await connect(lab.dsn, "plans")
    async with conn:
        found = await conn.execute(f"explain (analyze, buffers, format json) {text}".encode())
        row = await found.fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30, plan


async def test_e05_a_shard_that_lags_keeps_its_rows(lab: Lab) -> None:
    await lab.rows("insert into automation.relay_shards (shard) values (1)")
    day = await old_day(lab, 9)
    await lab.rows("update automation.outbox set shard = 1 where id = (select min(id) from automation.outbox)")
    await lab.rows(
        "update automation.relay_shards set (cursor_xid, cursor_id)"
        " = (select xid, id from automation.outbox order by xid desc, id desc limit 1) where shard = 0"
    )
    await keep_partitions(lab.dsn, 7, Measures())
    assert day in await partitions(lab, "outbox")


async def test_e05_a_day_that_ingest_has_not_taken_yet_stays(lab: Lab) -> None:
    """The relay may have to go back to a checkpoint that ingest has not passed."""
    first, second = await old_day(lab, 10), await old_day(lab, 9)
    await send_everything(lab)
    await lab.rows(
        "insert into automation.relay_checkpoints (shard, cursor_xid, cursor_id, topic, partition, seq)"
        " select 0, xid, id, 't', 0, 1 from automation.outbox where tableoid = %s::regclass"
        " order by xid desc, id desc limit 1",
        first,
    )
    await keep_partitions(lab.dsn, 7, Measures())
    assert first not in await partitions(lab, "outbox")
    assert second in await partitions(lab, "outbox")


async def test_the_scheduler_s_upkeep_looks_after_partitions_and_old_snapshots(lab: Lab) -> None:
    measures = Measures()
    day = await old_day(lab, 4)
    await send_everything(lab)
    schedule = PostgresSchedule(lab.dsn, measures, outbox_days=3)
    reading = ("set transaction isolation level repeatable read", "select count(*) from automation.queues")
    async with transaction(lab, *reading):
        await until(lambda: _sweeps_past(schedule, measures), "an age of the oldest snapshot")
    await schedule.sweep()
    assert measures.value("oldest_snapshot_age_seconds") < 60
    assert day not in await partitions(lab, "outbox")
    assert measures.value("partitions_ahead_days", "outbox") >= DAYS_AHEAD
    await schedule.aclose()


async def _sweeps_past(schedule: PostgresSchedule, measures: Measures) -> bool:
    await schedule.sweep()
    return measures.value("oldest_snapshot_age_seconds") > 0.2


async def test_e05_dropping_is_bounded_and_goes_on_at_the_next_upkeep(lab: Lab) -> None:
    for days in range(8, 16):
        await old_day(lab, days, rows=1)
    await send_everything(lab)
    measures = Measures()
    await keep_partitions(lab.dsn, 7, measures)
    assert measures.value("partitions_dropped_total", "outbox") == 5
    await keep_partitions(lab.dsn, 7, measures)
    assert measures.value("partitions_dropped_total", "outbox") == 8


async def test_e05_time_in_which_nobody_worked_does_not_count(lab: Lab) -> None:
    """After weeks off a rewind reaches back from when work stopped; what it needs must be there."""
    day = await old_day(lab, 20)
    await send_everything(lab)
    await lab.rows("insert into automation.sessions (owner, lease_until) values ('x', now() - interval '15 days')")
    await keep_partitions(lab.dsn, 7, Measures())
    assert day in await partitions(lab, "outbox")


async def test_dropping_a_day_under_an_open_transaction_blocks_no_writer(lab: Lab) -> None:
    door = await lab.door()
    day = await old_day(lab, 9)
    await send_everything(lab)
    measures = Measures()
    reading = ("set transaction isolation level repeatable read", "select count(*) from automation.outbox")
    async with transaction(lab, *reading) as reader:
        upkeep = asyncio.create_task(keep_partitions(lab.dsn, 7, measures))
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*(door.accept(webhook(f"order-{n}")) for n in range(50)))
            await upkeep
        assert {answer.outcome for answer in answers} == {Outcome.CREATED}
        assert measures.value("partitions_dropped_total", "outbox") == 0
        row = await (await reader.execute("select count(*) from automation.outbox")).fetchone()
        assert row == (1000,)  # what it saw, it still sees
        assert day not in await partitions(lab, "outbox")  # new looks are past it already
    await keep_partitions(lab.dsn, 7, measures)
    assert measures.value("partitions_dropped_total", "outbox") == 1
    assert await lab.value("select to_regclass(%s)", day) is None


async def test_a_day_that_was_detached_when_its_process_died_is_dropped_by_the_next(lab: Lab) -> None:
    day = await old_day(lab, 9)
    await send_everything(lab)
    await lab.rows(f"comment on table {day} is 'wholly sent'")
    await lab.rows(f"alter table automation.outbox detach partition {day}")
    by_hand = await old_day(lab, 10)
    await lab.rows(f"alter table automation.outbox detach partition {by_hand}")
    await keep_partitions(lab.dsn, 7, Measures())
    assert await lab.value("select to_regclass(%s)", day) is None
    assert await lab.value("select to_regclass(%s)::text", by_hand) == by_hand  # somebody else's: it stays
