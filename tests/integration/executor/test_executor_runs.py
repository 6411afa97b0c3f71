"""The executor on the real log: what is decided is committed before anything follows from it, whatever happens."""

import asyncio
import itertools
import time
from collections import Counter
from functools import partial

import pytest

from processors.engine.state import RunState
from schemas.errors import Refused
from schemas.records import ErrorInfo
from schemas.run_events import decode_run_event
from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import RUN_EVENTS, Working, Works
from tests.support.waiting import until

THREE = [[Act("reserve"), Act("charge"), Act("book")]]


async def test_three_steps_from_grant_to_end(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    run = works.lab.run()
    await works.make(run)
    (row,) = await works.ended()
    assert (row["state"], row["result"], row["fence"]) == ("succeeded", '{"steps": 3}', 1)
    assert await works.log(run.run_id) == [
        ("reserve", 1, "succeeded"),
        ("charge", 1, "succeeded"),
        ("book", 1, "succeeded"),
        ("~run", 0, "ended"),
    ]
    rows = await works.lab.rows("select topic, value from automation.outbox")
    event = decode_run_event(bytes(rows[0]["value"]))
    assert (rows[0]["topic"], event.run_id, event.state, event.sequence) == (RUN_EVENTS, run.run_id, "succeeded", 4)
    assert working.executor.live == 0
    assert await works.lab.taken() == 0


async def test_without_starts_of_its_own_the_body_is_told_to_run_each_step(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    working.bodies.self_starts = False
    await works.make(works.lab.run())
    assert (await works.ended())[0]["state"] == "succeeded"
    assert set(working.bodies.begun.values()) == {1}


async def test_a_failing_step_is_tried_again_and_then_succeeds(works: Works) -> None:
    works.script = [[Act("charge", fails=2, base=0.05)]]
    await works.lab.queue()
    works.schedule()
    await works.executor()
    run = works.lab.run()
    await works.make(run)
    assert (await works.ended())[0]["state"] == "succeeded"
    assert await works.log(run.run_id) == [
        ("charge", 1, "failed"),
        ("charge", 2, "failed"),
        ("charge", 3, "succeeded"),
        ("~run", 0, "ended"),
    ]


async def test_a_step_out_of_tries_fails_its_run_and_leaves_a_dead_letter(works: Works) -> None:
    refused = ErrorInfo("E_UPSTREAM_422", "Upstream", "the upstream answered 422", retryable=False)
    works.script = [[Act("charge", fails=9, error=refused)]]
    await works.lab.queue()
    await works.executor()
    run = works.lab.run()
    await works.make(run)
    (row,) = await works.ended()
    assert (row["state"], row["error_code"]) == ("failed", "E_STEP_FAILED")
    (letter,) = await works.lab.rows("select * from automation.dead_letters")
    assert (letter["run_id"], letter["error_code"], letter["reason"]) == (
        run.run_id,
        "E_STEP_FAILED",
        "permanent_error",
    )


async def test_a_long_retry_gives_the_slot_back_and_comes_back_in_its_time(works: Works) -> None:
    late = ErrorInfo("E_UPSTREAM_429", "Upstream", "too many requests", retry_after=0.5)
    works.script = [[Act("charge", fails=1, error=late)]]
    await works.lab.queue(limit=1)
    works.schedule()
    working = await works.executor()
    first, second = works.lab.run(), works.lab.run()
    works.scripts[second.run_id] = [[Act("quick")]]
    await works.make(first, second)
    rows = await works.ended(2)
    assert {row["state"] for row in rows} == {"succeeded"}
    assert working.bodies.order == [first.run_id, second.run_id, first.run_id]
    assert rows[0]["fence"] == 2


async def test_a_sleeping_run_parks_wakes_and_goes_on_behind_its_sleep(works: Works) -> None:
    works.script = [[Act("before"), Act("nap", sleep=0.5), Act("after")]]
    await works.lab.queue()
    works.schedule()
    working = await works.executor()
    run = works.lab.run()
    await works.make(run)
    await works.is_in(run.run_id, "sleeping")
    assert await works.lab.taken() == 0
    (row,) = await works.ended()
    assert row["state"] == "succeeded"
    assert [one[0] for one in await works.log(run.run_id)] == ["before", "nap", "nap", "after", "~run"]
    assert working.bodies.begun == Counter({(run.run_id, "before"): 1, (run.run_id, "after"): 1})
    assert (row["ended_at"] - row["started_at"]).total_seconds() >= 0.5


async def test_parallel_steps_with_one_retrying_while_the_other_runs(works: Works) -> None:
    works.script = [[Act("left", fails=1, base=0.05)], [Act("right"), Act("further")]]
    await works.lab.queue()
    works.schedule()
    working = await works.executor()
    reached = working.bodies.gate("right")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    await until(lambda: working.bodies.begun[run.run_id, "left"] == 2, "the retry runs beside its sibling", 10)
    working.bodies.gates["right"].set()
    assert (await works.ended())[0]["state"] == "succeeded"
    assert working.executor.counts["claimed"] == 1  # never parked


# cancel


async def send_cancel(works: Works, run_id: str) -> None:
    await works.lab.send_mail(run_id, "cancel", '{"reason":"ordered twice"}')
    for working in works._working:
        working.executor.look_for_mail()


async def test_cancel_while_a_step_runs(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    reached = working.bodies.gate("charge")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    await send_cancel(works, run.run_id)
    (row,) = await works.ended()
    assert (row["state"], row["error_code"]) == ("cancelled", "E_CANCELLED")
    assert working.bodies.closed == [run.run_id]
    assert await works.log(run.run_id) == [
        ("reserve", 1, "succeeded"),
        ("~run", 0, "closing"),
        ("charge", 1, "failed"),
        ("~run", 0, "ended"),
    ]
    assert await works.lab.rows("select from automation.dead_letters") == []
    assert await works.lab.rows("select from automation.run_mail") == []


async def test_cancel_before_the_run_starts(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    run = works.lab.run()
    await works.make(run)
    await works.lab.send_mail(run.run_id, "cancel", "{}")
    working = await works.executor()
    (row,) = await works.ended()
    assert row["state"] == "cancelled"
    assert working.bodies.starts == []


async def test_cancel_of_a_sleeping_run(works: Works) -> None:
    works.script = [[Act("nap", sleep=3600)]]
    await works.lab.queue()
    works.schedule()
    await works.executor()
    run = works.lab.run()
    await works.make(run)
    await works.is_in(run.run_id, "sleeping")
    await send_cancel(works, run.run_id)
    await works.lab.rows("update automation.live_runs set visible_at = clock_timestamp()")  # as the sender wakes it
    (row,) = await works.ended()
    assert row["state"] == "cancelled"
    assert await works.log(run.run_id) == [
        ("nap", 0, "opened"),
        ("~run", 0, "closing"),
        ("nap", 0, "cancelled"),
        ("~run", 0, "ended"),
    ]


async def test_mail_that_nobody_understands_harms_nothing(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    reached = working.bodies.gate("charge")
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    await works.lab.send_mail(run.run_id, "greeting", "hello")
    await works.lab.send_mail(run.run_id, "cancel", "not json")
    working.executor.look_for_mail()
    (row,) = await works.ended()
    assert row["state"] == "cancelled"


# owners and hosts that go away


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
    assert start.alone


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
    assert first.executor.counts["sessions_lost"] == 1
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


async def test_a_lease_that_could_not_be_renewed_ends_the_session(
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
    assert working.executor.counts["sessions_lost"] >= 1


async def test_an_executor_gets_over_a_broken_connection(works: Works) -> None:
    works.script = [[Act(f"step-{n}") for n in range(30)]]
    await works.lab.queue()
    working = await works.executor()
    runs = [works.lab.run() for _ in range(10)]
    await works.make(*runs)
    for _ in range(5):
        await until(lambda: working.executor.counts["commits"] > 0, "it works", 10)
        working.executor.counts["commits"] = 0
        await works.lab.rows("select pg_terminate_backend(%s)", await works.lab.backend_of(working.journal))
    rows = await works.ended(10)
    assert {(row["state"], row["fence"]) for row in rows} == {("succeeded", 1)}
    assert working.executor.counts["sessions_lost"] == 0
    assert set(working.bodies.begun.values()) == {1}


# stopping


async def test_a_stop_lets_what_is_in_flight_land_and_gives_the_rest_back(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processors.executor.executor.DRAIN_SECONDS", 1.0)
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
    await stopping
    assert time.monotonic() - began < 3
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


async def test_a_stop_with_nothing_in_flight_is_quick(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    began = time.monotonic()
    await working.stop()
    assert time.monotonic() - began < 1
    assert await works.lab.column("select alive from automation.sessions") == [False]


async def test_an_executor_that_never_had_a_session_stops(works: Works) -> None:
    works.lab.dsn, dsn = "postgresql://a44@127.0.0.1:1/none?connect_timeout=1", works.lab.dsn
    opening = asyncio.create_task(works.executor())
    await until(lambda: bool(works._working), "it tries", 10)
    await asyncio.wait_for(works._working[0].stop(), 5)
    opening.cancel()
    works.lab.dsn = dsn


# defects


async def test_a_run_whose_record_cannot_be_stored_is_blocked_alone(works: Works) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    reached = working.bodies.gate("charge")
    runs = [works.lab.run() for _ in range(6)]
    works.scripts[runs[2].run_id] = [[Act("reserve"), Act("charge", value='"nul \0"'), Act("book")]]
    works.scripts[runs[4].run_id] = [[Act("reserve"), Act("charge", value='"half \ud800"'), Act("book")]]
    await works.make(*runs)
    await asyncio.wait_for(reached.wait(), 10)
    await until(lambda: sum(working.bodies.begun.values()) == 12, "all are at the gate", 10)
    working.bodies.gates["charge"].set()
    await works.ended(4)
    await works.is_in(runs[2].run_id, "blocked")
    await works.is_in(runs[4].run_id, "blocked")
    assert await works.lab.states() == {"blocked": 2, "succeeded": 4}
    assert await works.log(runs[2].run_id) == [("reserve", 1, "succeeded"), ("~run", 0, "blocked")]
    codes = await works.lab.column("select error_code from automation.step_attempts where status = 'blocked'")
    assert codes == ["E_INTERNAL"] * 2
    assert working.executor.counts["sessions_lost"] == 0
    assert await works.lab.taken() == 0


async def test_a_decision_that_goes_wrong_blocks_its_run_and_no_other(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    works.script = THREE
    await works.lab.queue()
    working = await works.executor()
    runs = [works.lab.run() for _ in range(3)]
    key_of = RunState.key_of

    def broken(state: RunState, item: str) -> str:
        if state.run_id == runs[1].run_id and item == "charge":
            raise ZeroDivisionError
        return key_of(state, item)

    monkeypatch.setattr(RunState, "key_of", broken)
    await works.make(*runs)
    await works.ended(2)
    await works.is_in(runs[1].run_id, "blocked")
    assert (await works.log(runs[1].run_id))[-1] == ("~run", 0, "blocked")
    assert working.executor.counts["defects"] == 1


async def test_a_run_of_an_unknown_version_waits_at_the_head_of_its_lane(works: Works) -> None:
    async def kind_of(definition_id: int) -> str:
        raise Refused("E_VERSION_UNKNOWN", f"definition {definition_id} is not published")

    await works.lab.queue(ordered=True)
    await works.executor(kind_of=kind_of)
    first, second = works.lab.run("a", ordered=True), works.lab.run("a", ordered=True)
    await works.make(first, second)
    await works.is_in(first.run_id, "blocked")
    assert await works.state(second.run_id) == "pending"
    assert await works.lab.taken() == 0


# many


async def test_a_lane_keeps_its_order_over_two_executors(works: Works) -> None:
    works.script = THREE
    await works.lab.queue(limit=8, ordered=True)
    works.schedule()
    first, second = await works.executor(slots=4), await works.executor("executor-2", slots=4)
    runs = [works.lab.run(lane, ordered=True) for _ in range(15) for lane in "abcdefgh"]
    both = [first.bodies.gate("charge"), second.bodies.gate("charge")]
    for start in range(0, len(runs), 24):
        await works.make(*runs[start : start + 24])
    for reached in both:
        await asyncio.wait_for(reached.wait(), 10)
    first.bodies.gates["charge"].set()
    second.bodies.gates["charge"].set()
    rows = await works.ended(len(runs))
    assert {row["state"] for row in rows} == {"succeeded"}
    for lane in "abcdefgh":
        spans = await works.lab.rows(
            "select lane_seq, started_at, ended_at from automation.runs_ended where lane = %s order by ended_at", lane
        )
        assert [span["lane_seq"] for span in spans] == list(range(1, 16))
        assert all(after["started_at"] >= before["ended_at"] for before, after in itertools.pairwise(spans))
    assert len(first.bodies.starts) + len(second.bodies.starts) == len(runs)


async def test_three_hundred_runs_at_once(works: Works) -> None:
    works.script = THREE
    await works.lab.queue(limit=300)
    working = await works.executor(slots=300)
    began = time.perf_counter()
    await works.make(*(works.lab.run() for _ in range(300)))
    rows = await works.ended(300)
    seconds = time.perf_counter() - began
    print(f"300 runs of three steps: {seconds:.2f} s, {working.executor.counts['commits']} commits")  # noqa: T201
    assert {row["state"] for row in rows} == {"succeeded"}
    assert set(working.bodies.begun.values()) == {1}
    assert await works.lab.value("select count(*) from automation.step_attempts") == 1200
    assert working.executor.counts["commits"] < 300


async def test_no_more_runs_are_held_than_there_are_slots_by_much(works: Works) -> None:
    works.script = THREE
    await works.lab.queue(limit=100)
    works.schedule()
    working = await works.executor(slots=5)
    most = 0
    start = working.bodies.start

    def counted(run: object) -> None:
        nonlocal most
        start(run)  # type: ignore[arg-type]
        most = max(most, working.executor.live)

    working.bodies.start = counted  # type: ignore[method-assign]
    await works.make(*(works.lab.run() for _ in range(60)))
    assert {row["state"] for row in await works.ended(60)} == {"succeeded"}
    assert most <= 10
