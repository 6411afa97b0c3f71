"""Defects that cost one run alone, lanes over two executors, and many runs at once."""

import asyncio
import itertools
import time

import pytest

from processors.engine.state import RunState
from schemas.errors import Refused
from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import Works
from tests.support.waiting import until

THREE = [[Act("reserve"), Act("charge"), Act("book")]]


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
    assert working.executor.measures.value("session_lost_total") == 0
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
    assert working.executor.measures.value("run_defects_total") == 1


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
    commits = working.executor.measures.value("executor_commits_total")
    print(f"300 runs of three steps: {seconds:.2f} s, {commits:.0f} commits")  # noqa: T201
    assert {row["state"] for row in rows} == {"succeeded"}
    assert set(working.bodies.begun.values()) == {1}
    assert await works.lab.value("select count(*) from automation.step_attempts") == 1200
    assert commits < 300


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


@pytest.mark.parametrize("fault", ["kind = 'portal'", "seq = seq + 7", "error = '[7]'"])
async def test_a_run_whose_log_cannot_be_read_is_blocked_alone(works: Works, fault: str) -> None:
    """As a later release may have written it: whoever claims it must not fall over it."""
    works.script = [[Act("reserve"), Act("charge")]]
    await works.lab.queue()
    works.schedule()
    first = await works.executor()
    reached = first.bodies.gate("charge")
    bad, good = works.lab.run(), works.lab.run()
    await works.make(bad, good)
    await asyncio.wait_for(reached.wait(), 10)
    await until(lambda: sum(first.bodies.begun.values()) == 4, "both are inside", 10)
    await first.kill()
    await works.lab.rows(f"update automation.step_attempts set {fault} where run_id = %s", bad.run_id)  # noqa: S608
    await works.executor("executor-2")
    (row,) = await works.ended()
    assert (row["run_id"], row["state"]) == (good.run_id, "succeeded")
    await works.is_in(bad.run_id, "blocked")
