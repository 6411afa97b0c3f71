"""The executor on the real log: what is decided is committed before anything follows from it, whatever happens."""

import asyncio
from collections import Counter

from schemas.records import ErrorInfo
from schemas.run_events import decode_run_event
from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import RUN_EVENTS, Works
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
    working = await works.executor()
    run = works.lab.run()
    await works.make(run)
    await works.is_in(run.run_id, "sleeping")
    assert await works.lab.taken() == 0
    works.schedule()  # who alone wakes it
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
    assert working.executor.measures.value("runs_claimed_total") == 1  # never parked


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
