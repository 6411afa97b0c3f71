"""Events that get too old while their runs wait: a queue that flows again, an executor that comes late or is lost."""

import asyncio

from msgspec.structs import replace

from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import Works

LONG_AGO, FAR = "2026-07-19T14:00:00Z", "9998-01-01T00:00:00Z"
ONE = [[Act("charge")]]


async def test_a_dammed_queue_that_flows_again_begins_nothing_that_is_too_old(works: Works) -> None:
    works.script = ONE
    await works.lab.queue(limit=1, ordered=True)
    working = await works.executor()
    reached = working.bodies.gate("charge")
    first, late, good = (works.lab.run(ordered=True) for _ in range(3))
    await works.make(first, replace(late, stale_at=LONG_AGO), replace(good, stale_at=FAR))
    await asyncio.wait_for(reached.wait(), 10)
    working.bodies.gates["charge"].set()
    rows = {row["run_id"]: row for row in await works.ended(3)}
    assert [rows[run.run_id]["state"] for run in (first, late, good)] == ["succeeded", "failed", "succeeded"]
    assert rows[late.run_id]["error_code"] == "E_EVENT_TOO_OLD"
    assert [start.run_id for start in working.bodies.starts] == [first.run_id, good.run_id]
    assert await works.log(late.run_id) == [("~run", 0, "closing"), ("~run", 0, "ended")]
    (letter,) = await works.lab.rows("select * from automation.dead_letters")
    told = (letter["run_id"], letter["reason"], letter["error_code"])
    assert told == (late.run_id, "event_too_old", "E_EVENT_TOO_OLD")
    assert await works.lab.taken() == 0


async def test_what_was_granted_in_time_and_claimed_too_late_is_not_begun(works: Works) -> None:
    works.script = ONE
    await works.lab.queue()
    run = replace(works.lab.run(), stale_at=FAR)
    await works.make(run)
    await works.lab.rows("update automation.live_runs set stale_at = granted_at")
    working = await works.executor()
    (row,) = await works.ended()
    assert (row["state"], row["error_code"], working.bodies.starts) == ("failed", "E_EVENT_TOO_OLD", [])


async def test_a_run_that_was_begun_in_time_goes_on_in_another_executor(works: Works) -> None:
    works.script = ONE
    await works.lab.queue()
    works.schedule()
    first = await works.executor()
    reached = first.bodies.gate("charge")
    run = replace(works.lab.run(), stale_at=FAR)
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    await works.lab.rows("update automation.live_runs set stale_at = started_at + interval '1 microsecond'")
    await first.kill()
    await works.executor("executor-2")
    await works.lab.kill_session()
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 2)
