"""Owners, hosts and connections that go away, and executors that stop: nothing is lost, nothing counted twice."""

import asyncio
import time
from functools import partial

import pytest

from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import Working, Works
from tests.support.waiting import until

THREE = [[Act("reserve"), Act("charge"), Act("book")]]


async def test_another_executor_goes_on_at_the_first_unfinished_step(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    works.schedule()
    first = await works.executor()
    reached = first.bodies.gate("charge")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    await first.kill()
    second = await works.executor("executor-2")
    await works.lab.kill_session()
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 2)
    assert await works.log(run.run_id) == [
        ("reserve", 1, "succeeded"),
        ("charge", 1, "lost"),
        ("charge", 2, "succeeded"),
        ("book", 1, "succeeded"),
        ("~run", 0, "ended"),
    ]
    assert second.bodies.begun[run.run_id, "reserve"] == 0
    (start,) = second.bodies.starts
    assert start.go_until is None
    assert start.losses == 1


async def test_an_executor_whose_session_was_closed_forgets_its_runs(works: Works) -> None:
    """It was only slow: what it does with its old session is refused, and it begins anew."""
    works.script = THREE
    await works.lab.queue()
    first = await works.executor()
    reached = first.bodies.gate("charge")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    await works.lab.kill_session()
    await works.lab.schedule().reap()
    first.bodies.gates["charge"].set()
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 2)
    assert first.executor.measures.value("session_lost_total") == 1
    assert ("charge", 1, "lost") in await works.log(run.run_id)
    assert first.bodies.begun[run.run_id, "charge"] == 2


async def test_a_step_host_that_dies_costs_an_attempt(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    reached = working.bodies.gate("charge")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    working.bodies.gates["charge"].set()
    working.bodies.lose(run.run_id)
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 1)
    log = await works.log(run.run_id)
    assert log[:2] == [("reserve", 1, "succeeded"), ("charge", 1, "lost")]
    assert log[-3:] == [("charge", 2, "succeeded"), ("book", 1, "succeeded"), ("~run", 0, "ended")]


def is_begun(working: Working, run_id: str, times: int) -> bool:
    return working.bodies.begun[run_id, "poison"] == times


async def test_a_host_that_dies_again_and_again_ends_the_run(works: Works) -> None:
    works.script = [[Act("poison")]]
    await works.lab.queue()
    working = await works.executor()
    working.bodies.gate("poison")
    run = works.lab.run()
    await works.make(run)
    for times in range(1, 6):
        await until(partial(is_begun, working, run.run_id, times), f"attempt {times}", 10)
        working.bodies.lose(run.run_id)
    (row,) = await works.ended()
    assert (row["state"], row["error_code"]) == ("failed", "E_WORKER_CRASH_LOOP")
    assert await works.lab.column("select reason from automation.dead_letters") == ["max_attempts_exceeded"]


async def test_f02_an_executor_that_cannot_renew_its_lease_stops_before_it_ends(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was forgotten may not stay owned by a session that goes on living."""
    works.script = THREE
    await works.lab.queue()
    works.schedule()
    working = await works.executor(lease=1.2)
    reached = working.bodies.gate("charge")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    blocked, commit = asyncio.Event(), working.journal.commit

    async def slow(batch: object) -> object:
        await blocked.wait()
        return await commit(batch)  # type: ignore[arg-type]

    monkeypatch.setattr(working.journal, "commit", slow)
    await until(lambda: working.executor.live == 0, "the runs are dropped", 10)
    monkeypatch.setattr(working.journal, "commit", commit)
    blocked.set()
    working.bodies.gates["charge"].set()
    (row,) = await works.ended()
    assert row["state"] == "succeeded"
    assert row["fence"] >= 2
    assert working.executor.measures.value("session_lost_total") >= 1


async def test_an_executor_gets_over_a_broken_connection(works: Works) -> None:
    works.script = [[Act(f"step-{n}") for n in range(30)]]
    await works.lab.queue()
    working = await works.executor()
    runs = [works.lab.run() for _ in range(10)]
    await works.make(*runs)

    def commits() -> float:
        return working.executor.measures.value("executor_commits_total")

    for _ in range(5):
        before = commits()
        await until(lambda before=before: commits() > before, "it works", 10)
        await works.lab.rows("select pg_terminate_backend(%s)", await works.lab.backend_of(working.journal))
    rows = await works.ended(10)
    assert {(row["state"], row["fence"]) for row in rows} == {("succeeded", 1)}
    assert working.executor.measures.value("session_lost_total") == 0
    assert set(working.bodies.begun.values()) == {1}


# stopping


async def test_a_stop_lets_what_is_in_flight_land_and_gives_the_rest_back(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = 3.0
    monkeypatch.setattr("processors.executor.executor.DRAIN_SECONDS", drain)
    works.script = THREE
    await works.lab.queue()
    first = await works.executor()
    reached = first.bodies.gate("charge")
    runs = [works.lab.run() for _ in range(4)]
    works.scripts[runs[3].run_id] = [[Act("endless")]]
    endless = first.bodies.gate("endless")
    await works.make(*runs)
    await asyncio.wait_for(reached.wait(), 10)
    await asyncio.wait_for(endless.wait(), 10)
    await until(lambda: sum(first.bodies.begun.values()) == 7, "all are at their gates", 10)
    stopping = asyncio.create_task(first.stop())
    first.bodies.gates["charge"].set()
    began = time.monotonic()
    await stopping  # though one of them does not end
    assert time.monotonic() - began < 3 * drain
    assert await works.lab.states() == {"granted": 4}
    rows = await works.lab.rows("select run_id, owner_lost, fence from automation.live_runs order by run_id")
    assert [(row["owner_lost"], row["fence"]) for row in rows] == [(False, 2)] * 3 + [(True, 2)]
    assert await works.lab.rows("select from automation.step_attempts where step_id = 'book'") == []
    second = await works.executor("executor-2")
    assert {row["state"] for row in await works.ended(4)} == {"succeeded"}
    assert [await works.log(run.run_id) for run in runs[:3]] == [
        [("reserve", 1, "succeeded"), ("charge", 1, "succeeded"), ("book", 1, "succeeded"), ("~run", 0, "ended")]
    ] * 3
    assert (await works.log(runs[3].run_id))[:2] == [("endless", 1, "lost"), ("endless", 2, "succeeded")]
    assert second.bodies.begun[runs[0].run_id, "charge"] == 0


async def test_a_stop_with_nothing_in_flight_is_quick(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = 60.0
    monkeypatch.setattr("processors.executor.executor.DRAIN_SECONDS", drain)
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    began = time.monotonic()
    await working.stop()
    assert time.monotonic() - began < drain / 6
    assert await works.lab.column("select alive from automation.sessions") == [False]


async def test_an_executor_that_never_had_a_session_stops(works: Works) -> None:
    works.lab.dsn, dsn = "postgresql://a44@127.0.0.1:1/none?connect_timeout=1", works.lab.dsn
    opening = asyncio.create_task(works.executor())
    await until(lambda: bool(works._working), "it tries", 10)
    await asyncio.wait_for(works._working[0].stop(), 5)
    opening.cancel()
    works.lab.dsn = dsn
