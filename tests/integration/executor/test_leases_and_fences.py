"""Whose run it is: clocks that are wrong, lists that are old, owners that die between steps, zombies that commit."""

import asyncio
import random
import time
from datetime import datetime, timedelta
from functools import partial

import pytest

from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.ports.journal import Batch, Claim, SessionOver
from processors.ports.schedule import Silent
from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import Working, Works
from tests.integration.log.lab import entry_of
from tests.support.waiting import until

THREE = [[Act("reserve"), Act("charge"), Act("book")]]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("skew", [-60.0, 60.0])
async def test_f01_a_worker_whose_wall_clock_is_wrong_neither_loses_nor_steals_a_lease(
    works: Works, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + skew)
    works.script = [[Act("reserve"), Act("nap", sleep=0.4), Act("charge")]]
    await works.lab.queue()
    measures = works.schedule()
    first, second = await works.executor(lease=6), await works.executor("executor-2", lease=6)
    reached = first.bodies.gate("charge"), second.bodies.gate("charge")
    await works.make(works.lab.run())
    done, waiting = await asyncio.wait(
        [asyncio.create_task(one.wait()) for one in reached], timeout=20, return_when=asyncio.FIRST_COMPLETED
    )
    assert done
    for one in waiting:
        one.cancel()
    renewed = await leases(works)

    async def is_renewed() -> bool:
        return all(now > then for now, then in zip(await leases(works), renewed, strict=True))

    await until(is_renewed, "both leases are renewed", 20)
    for one in (first, second):
        one.bodies.gates["charge"].set()
    (row,) = await works.ended()
    assert row["state"] == "succeeded"
    slept = await works.lab.value(
        "select max(recorded_at) filter (where status = 'succeeded') - min(recorded_at)"
        " from automation.step_attempts where step_id = 'nap'"
    )
    assert timedelta(seconds=0.3) < slept < timedelta(seconds=20)
    assert measures.value("lease_reclaim_total") == 0


async def leases(works: Works) -> list[datetime]:
    return list(await works.lab.column("select lease_until from automation.sessions where alive order by session_id"))


@pytest.mark.timeout(60)
async def test_f05_a_session_that_committed_since_it_seemed_dead_is_left_alone(works: Works) -> None:
    """What a scheduler read a moment ago is no reason to take a run from anybody."""
    await works.lab.queue()
    await works.make(works.lab.run())
    journal = await works.lab.journal(lease=600)
    (claim,) = await works.lab.claim(journal)
    await journal._liveness.let_go()
    (row,) = await works.lab.rows("select session_id, batch from automation.sessions")
    seen = Silent(row["session_id"], row["batch"])
    await journal.commit(Batch(entries=[entry_of(claim, 1)]))
    assert await works.lab.schedule().reap([seen]) == []
    now_seen = Silent(seen.session_id, seen.batch + 1)
    (grant,) = await works.lab.schedule().reap([now_seen])
    assert (grant.run_id, grant.fence) == (claim.run_id, 2)


@pytest.mark.timeout(60)
async def test_f05_a_session_whose_lock_is_held_is_left_alone(works: Works) -> None:
    await works.lab.queue()
    await works.make(works.lab.run())
    journal = await works.lab.journal(lease=600)
    await works.lab.claim(journal)

    async def is_watched() -> bool:
        return bool(await works.lab.value("select watched from automation.sessions"))

    await until(is_watched, "the session is watched", 10)
    (row,) = await works.lab.rows("select session_id, batch from automation.sessions")
    assert await works.lab.schedule().reap([Silent(row["session_id"], row["batch"])]) == []
    assert await works.lab.value("select alive from automation.sessions")


@pytest.mark.timeout(60)
async def test_f07_a_death_between_two_steps_frees_the_one_slot_of_a_queue(works: Works) -> None:
    works.script = THREE
    await works.lab.queue(limit=1)
    works.schedule()
    first = await works.executor(lease=600)
    reached = first.bodies.gate("book")
    run, behind = works.lab.run(), works.lab.run()
    await works.make(run)
    await works.make(behind)
    await asyncio.wait_for(reached.wait(), 10)
    await first.kill()
    await works.executor("executor-2", lease=600)
    rows = await works.ended(2)
    assert [row["state"] for row in rows] == ["succeeded", "succeeded"]
    assert await works.log(run.run_id) == [
        ("reserve", 1, "succeeded"),
        ("charge", 1, "succeeded"),
        ("book", 1, "lost"),
        ("book", 2, "succeeded"),
        ("~run", 0, "ended"),
    ]
    assert await works.lab.taken() == 0


def have_failed_once(working: Working, runs: list[str]) -> bool:
    return all(working.bodies.begun[run_id, "charge"] == 1 for run_id in runs)


@pytest.mark.timeout(60)
async def test_f09_cancels_that_come_while_nobody_runs_end_the_retries(works: Works) -> None:
    works.script = [[Act("charge", fails=99, most=99, base=1e9)]]
    await works.lab.queue()
    works.schedule()
    first = await works.executor()
    runs = [works.lab.run() for _ in range(20)]
    names = [run.run_id for run in runs]
    await works.make(*runs)
    await until(partial(have_failed_once, first, names), "each has failed once", 20)

    async def all_retry() -> bool:
        return await works.lab.states() == {"retrying": len(runs)}

    await until(all_retry, "they wait for their next attempts", 20)
    await first.kill()
    for name in names:
        await works.lab.send_mail(name, "cancel", "{}")
    await works.lab.rows("update automation.live_runs set visible_at = clock_timestamp()")  # as the sender wakes them
    second = await works.executor("executor-2")
    rows = await works.ended(len(runs))
    assert {row["state"] for row in rows} == {"cancelled"}
    assert sum(second.bodies.begun.values()) == 0


async def commit_until_over(journal: PostgresJournal, claim: Claim) -> int:
    """A zombie: appends until the fence refuses it. Answers how many appends it was told were committed."""
    seq = 0
    try:
        while True:
            await journal.commit(Batch(entries=[entry_of(claim, seq + 1)]))
            seq += 1
    except SessionOver:
        return seq


async def close_at(moment: float, schedule: PostgresSchedule, works: Works) -> None:
    await asyncio.sleep(moment)
    await works.lab.kill_session()
    while not await schedule.reap():
        await works.lab.kill_session()


@pytest.mark.timeout(120)
async def test_a_zombie_commits_nothing_from_the_moment_its_run_is_granted_again(works: Works) -> None:
    """Both at once, thirty times at moments that are drawn: what was committed is what the zombie was told."""
    draw = random.Random(4)
    await works.lab.queue()
    schedule = works.lab.schedule()
    for _ in range(30):
        run = works.lab.run()
        await works.make(run)
        journal = await works.lab.journal(lease=600)
        (claim,) = await works.lab.claim(journal)
        told, _ = await asyncio.gather(
            commit_until_over(journal, claim), close_at(draw.uniform(0.0, 0.05), schedule, works)
        )
        kept = await works.lab.value("select count(*) from automation.step_attempts where run_id = %s", run.run_id)
        assert kept == told
        assert await works.lab.value("select fence from automation.live_runs where run_id = %s", run.run_id) == 2
        await works.lab.rows("delete from automation.live_runs")
        await journal.aclose()
