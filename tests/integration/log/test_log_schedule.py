"""The scheduler's side of the log: timers, lost owners, free slots, upkeep, and partitions ahead."""

import asyncio
import itertools
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from processors.adapters.postgres.schedule import PostgresSchedule
from processors.adapters.postgres.wakeups import Channel, Notifier, listen
from processors.engine.moves import TERMINAL, RunStatus
from processors.ports.journal import Batch
from processors.ports.runs import Grant
from processors.scheduler.scheduler import Scheduler
from schemas.errors import Unavailable
from tests.integration.log.lab import Lab, end_of, entry_of, rest_of
from tests.support.waiting import until


class Told:
    def __init__(self) -> None:
        self.grants: list[Grant] = []

    def granted(self, grants: Sequence[Grant]) -> None:
        self.grants += grants


async def parked(lab: Lab, seconds: float, runs: int = 1) -> None:
    """Runs that sleep for so long from now on."""
    await lab.queue()
    await lab.make([lab.run() for _ in range(runs)])
    journal = await lab.journal()
    claims = await lab.claim(journal)
    due = journal.now() + timedelta(seconds=seconds)
    await journal.commit(Batch(rests=[rest_of(claim, due) for claim in claims]))


async def test_an_idle_log_asks_for_nothing(lab: Lab) -> None:
    await lab.queue()
    outlook = await lab.schedule().look()
    assert (outlook.timers_due, outlook.sessions_late, outlook.runs_hungry, outlook.next_due) == (
        False,
        False,
        False,
        None,
    )


async def test_the_outlook_tells_when_the_next_timer_is_due(lab: Lab) -> None:
    await parked(lab, 60)
    outlook = await lab.schedule().look()
    assert not outlook.timers_due
    assert outlook.next_due is not None
    assert 55 < outlook.next_due <= 60


async def test_due_timers_wake_and_the_others_sleep_on(lab: Lab) -> None:
    await parked(lab, 60, runs=3)
    await lab.rows(
        "update automation.live_runs set visible_at = clock_timestamp() where run_id in"
        " (select run_id from automation.live_runs order by run_id limit 2)"
    )
    schedule = lab.schedule()
    assert (await schedule.look()).timers_due
    assert await schedule.wake_due() == 2
    assert (await schedule.look()).runs_hungry
    assert len(await schedule.feed()) == 2
    assert await lab.states() == {"granted": 2, "sleeping": 1}
    assert await schedule.wake_due() == 0


async def test_a_full_queue_is_not_hungry(lab: Lab) -> None:
    await lab.queue(limit=1)
    await lab.make([lab.run(), lab.run()])
    assert not (await lab.schedule().look()).runs_hungry


async def test_lost_owners_are_found_and_their_runs_granted_under_the_next_fence(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run() for _ in range(5)])
    journal, other = await lab.journal(), await lab.journal(owner="executor-2")
    lost, kept = await lab.claim(journal, room=3), await lab.claim(other)
    await lab.kill_session()
    schedule = lab.schedule()
    assert (await schedule.look()).sessions_late
    grants = await schedule.reap()
    assert {(grant.run_id, grant.fence) for grant in grants} == {(claim.run_id, 2) for claim in lost}
    rows = await lab.rows("select run_id, owner_lost, crashes from automation.live_runs where state = 'granted'")
    assert all(row["owner_lost"] and row["crashes"] == 1 for row in rows)
    assert await lab.taken() == await lab.holding() == 5  # a regrant keeps its slot
    await other.commit(Batch(ends=[end_of(claim) for claim in kept]))
    assert await schedule.reap() == []


async def test_runs_that_a_scheduler_left_in_the_middle_of_its_work_are_found_later(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run()])
    await lab.claim(await lab.journal())
    await lab.rows("update automation.sessions set alive = false")
    assert not (await lab.schedule().look()).sessions_late
    told, stop = Told(), asyncio.Event()
    scheduler = Scheduler(lab.schedule(), told)
    running = asyncio.create_task(scheduler.run(stop))
    await until(lambda: bool(told.grants), "the run is granted again")
    stop.set()
    await running


async def test_more_lost_runs_than_one_statement_takes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.adapters.postgres.schedule.MOST", 4)
    await lab.queue()
    await lab.make([lab.run() for _ in range(10)])
    await lab.claim(await lab.journal())
    await lab.kill_session()
    assert len(await lab.schedule().reap()) == 10


async def test_two_schedulers_grant_everything_once(lab: Lab) -> None:
    await parked(lab, -1, runs=30)
    both = [lab.schedule(), lab.schedule()]
    woken = await asyncio.gather(*(one.wake_due() for one in both))
    assert sum(woken) == 30
    fed = await asyncio.gather(*(one.feed() for one in both))
    assert sorted(grant.run_id for grants in fed for grant in grants) == await lab.column(
        "select run_id from automation.live_runs order by run_id"
    )


async def test_the_scheduler_wakes_a_sleeping_run_in_its_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.scheduler.scheduler.LOOK_SECONDS", 600.0)  # it looks when the run is due
    await parked(lab, 0.6)
    stop, told = asyncio.Event(), Told()
    scheduler = Scheduler(lab.schedule(), told)
    running = asyncio.create_task(scheduler.run(stop))
    await until(lambda: bool(told.grants), "the run is granted", 5)
    (row,) = await lab.rows("select granted_at, created_at from automation.live_runs")
    assert timedelta(seconds=0.5) < row["granted_at"] - row["created_at"] < timedelta(seconds=3)
    stop.set()
    await running
    counted = [scheduler.measures.value(name) for name in ("timers_woken_total", "runs_granted_total")]
    assert counted == [1, 1]


async def test_the_scheduler_survives_a_broken_connection(lab: Lab) -> None:
    stop, told = asyncio.Event(), Told()
    schedule = lab.schedule()
    scheduler = Scheduler(schedule, told)
    await schedule.look()
    running = asyncio.create_task(scheduler.run(stop))
    await lab.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'a44-scheduler' and datname = current_database()"
    )
    await lab.queue()
    await lab.rows("update automation.queues set max_concurrency = 1")
    await lab.make([lab.run()], grant=False)
    scheduler.wake()
    await until(lambda: bool(told.grants), "the run is granted", 5)
    stop.set()
    await running


async def test_a_question_that_is_not_answered_is_unavailable(lab: Lab) -> None:
    schedule = lab.schedule()
    await schedule.look()
    await lab.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'a44-scheduler' and datname = current_database()"
    )
    with pytest.raises(Unavailable):
        await schedule.look()
    assert not (await schedule.look()).timers_due


# upkeep


async def test_upkeep_takes_what_is_old_and_leaves_what_is_in_use(lab: Lab) -> None:
    await lab.queue(ordered=True)
    await lab.make([lab.run("a", ordered=True)])
    await lab.claim(await lab.journal())
    await lab.rows(
        "insert into automation.idempotency_keys"
        " select sha256(n::text::bytea), 'shop', n::text, 'header', '', 'e', null, now() - interval '9 days',"
        " now() - make_interval(hours => 20 + n * 5) from generate_series(0, 1) n"
    )
    await lab.rows(
        "insert into automation.inbox (consumer, event_id, received_at)"
        " select 'ingest', n::text, now() - make_interval(days => 7 + n * 2) from generate_series(0, 1) n"
    )
    await lab.rows(
        "insert into automation.sessions (owner, alive, lease_until) values ('old', false, now() - interval '2 days')"
    )
    await lab.rows("insert into automation.run_mail (run_id, kind, body, actor) values ('run_gone', 'cancel', '', '')")
    await lab.send_mail(await lab.value("select run_id from automation.live_runs"))
    await lab.schedule().sweep()
    assert await lab.column("select idempotency_key from automation.idempotency_keys") == ["0"]
    assert await lab.column("select event_id from automation.inbox where length(event_id) = 1") == ["0"]
    assert await lab.column("select owner from automation.sessions") == ["executor-1"]
    assert await lab.value("select count(*) from automation.run_mail") == 1
    assert await lab.column("select lane from automation.lanes") == ["a"]


async def test_upkeep_goes_on_until_it_has_caught_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.adapters.postgres.schedule.MOST", 10)
    await lab.rows(
        "insert into automation.inbox (consumer, event_id, received_at)"
        " select 'ingest', n::text, now() - interval '9 days' from generate_series(1, 55) n"
    )
    await lab.schedule().sweep()
    assert await lab.value("select count(*) from automation.inbox") == 0


# partitions


async def bounds(lab: Lab, parent: str) -> list[tuple[str, str]]:
    rows = await lab.column(
        "select pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = ('automation.' || %s)::regclass",
        parent,
    )
    return sorted((text.split("'")[1], text.split("'")[3]) for text in rows)


@pytest.mark.parametrize("parent", ["runs_ended", "step_attempts", "outbox"])
async def test_partitions_lie_side_by_side_from_before_today(lab: Lab, parent: str) -> None:
    found = await bounds(lab, parent)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(found)), found
    assert len(found) >= 5


async def test_partitions_are_made_once_by_any_number_of_schedulers(lab: Lab) -> None:
    before = await bounds(lab, "step_attempts")
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        (row,) = await (await conn.execute("select automation.ensure_partitions(5)")).fetchall()
        assert row[0] == 4  # two months more than the three that are there, of two tables; days enough are there
        await conn.rollback()
    await asyncio.gather(*(lab.schedule().sweep() for _ in range(3)))
    assert await bounds(lab, "step_attempts") == before


async def test_a_month_s_last_and_first_runs_go_to_their_own_partitions(lab: Lab) -> None:
    """A run id's time is its month, to the millisecond."""
    await lab.queue()
    today = datetime.now(UTC)
    first = (today.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    millis = int(first.timestamp() * 1000)
    runs = [lab.run(millis=millis - 1), lab.run(millis=millis)]
    await lab.make(runs)
    journal = await lab.journal()
    claims = await lab.claim(journal)
    await journal.commit(
        Batch(entries=[entry_of(claim, 1) for claim in claims], ends=[end_of(claim) for claim in claims])
    )
    for parent in ("runs_ended", "step_attempts"):
        places = await lab.column(f"select tableoid::regclass::text from automation.{parent} order by run_id")  # noqa: S608
        months = [(first - timedelta(days=1)).strftime("%Y%m"), first.strftime("%Y%m")]
        assert places == [f"automation.{parent}_{month}" for month in months]


@pytest.mark.parametrize(
    ("table", "states"),
    [("live_runs", set(RunStatus) - TERMINAL), ("runs_ended", set(TERMINAL))],
)
async def test_the_tables_know_the_states_of_the_engine(lab: Lab, table: str, states: set[RunStatus]) -> None:
    text = await lab.value(
        "select pg_get_constraintdef(oid) from pg_constraint"
        " where contype = 'c' and conrelid = ('automation.' || %s)::regclass",
        table,
    )
    assert set(re.findall(r"'(\w+)'", text)) == {str(state) for state in states}


# wake-ups


async def test_wake_ups_reach_listeners_and_are_coalesced(lab: Lab) -> None:
    stop, heard = asyncio.Event(), [0]
    woken = asyncio.Event()

    def hear() -> None:
        heard[0] += 1
        woken.set()

    listening = asyncio.create_task(listen(lab.dsn, {Channel.GRANTED: hear, Channel.MAIL: lambda: None}, stop))
    await asyncio.wait_for(woken.wait(), 10)  # once at the start, for what was missed
    woken.clear()
    notifier = Notifier(lab.dsn)
    for _ in range(500):
        notifier.wake(Channel.GRANTED)
    notifier.wake(Channel.OUTBOX)
    await asyncio.wait_for(woken.wait(), 10)
    assert heard[0] <= 5
    stop.set()
    await asyncio.wait_for(listening, 10)
    await notifier.aclose()


async def test_a_listener_that_lost_its_connection_wakes_once_for_what_it_missed(lab: Lab) -> None:
    stop, woken = asyncio.Event(), asyncio.Event()
    listening = asyncio.create_task(listen(lab.dsn, {Channel.GRANTED: woken.set}, stop))
    await asyncio.wait_for(woken.wait(), 10)
    woken.clear()
    await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-listen"))
    await asyncio.wait_for(woken.wait(), 10)
    woken.clear()
    await lab.rows("notify a44_granted")
    await asyncio.wait_for(woken.wait(), 10)
    stop.set()
    await asyncio.wait_for(listening, 10)


async def test_a_notifier_whose_connection_broke_is_of_use_again(lab: Lab) -> None:
    stop, woken = asyncio.Event(), asyncio.Event()
    listening = asyncio.create_task(listen(lab.dsn, {Channel.MAIL: woken.set}, stop))
    await asyncio.wait_for(woken.wait(), 10)
    woken.clear()
    notifier = Notifier(lab.dsn)
    notifier.wake(Channel.MAIL)
    await asyncio.wait_for(woken.wait(), 10)
    woken.clear()
    await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-notify"))

    async def is_heard() -> bool:
        notifier.wake(Channel.MAIL)
        return woken.is_set()

    await until(is_heard, "the wake-up is heard", 10)
    stop.set()
    await asyncio.wait_for(listening, 10)
    await notifier.aclose()


async def test_a_schedule_without_postgres_is_unavailable() -> None:
    schedule = PostgresSchedule("postgresql://a44@127.0.0.1:1/none?connect_timeout=1")
    with pytest.raises(Unavailable):
        await schedule.look()
