"""Cancel, close, drop and the end: who is told what, and that nothing goes on unseen."""

import asyncio

import pytest

from processors.engine.requests import BodyStatus
from schemas.errors import Unavailable
from tests.support.yaml_runs import RUN_ID, spec_of, start_of
from tests.support.yaml_stage import Stage

STEPS = "- {id: a, uses: connector/x.y, timeout: 60s}\n- {id: b, uses: connector/x.y, timeout: 60s}"
GO = 101.0


async def _flying(stage: Stage) -> None:
    stage.start(spec_of(STEPS), start_of(go_until=GO))
    await stage.listener.next("turned")
    async with asyncio.timeout(5):
        await stage.connector.called.wait()


async def _stopped(stage: Stage) -> None:
    async with asyncio.timeout(5):
        await stage.connector.stopped.wait()


async def test_a_cancelled_attempt_tells_so(stage: Stage):
    await _flying(stage)
    stage.bodies.cancel_step(RUN_ID, 1, "a")
    item, attempt, token, error, _ = await stage.listener.next("failed")
    assert (item, attempt, token, error.code, error.retryable) == ("a", 1, "y1", "E_CANCELLED", False)
    assert stage.connector.stopped.is_set()


async def test_an_attempt_cancelled_before_its_first_step_tells_so_too(stage: Stage):
    stage.start(spec_of(STEPS), start_of())
    await stage.listener.next("turned")
    stage.bodies.run_step(RUN_ID, 1, "a", 1, "t1", "k", 5.0)
    stage.bodies.cancel_step(RUN_ID, 1, "a")
    assert (await stage.listener.next("failed"))[3].code == "E_CANCELLED"
    assert stage.connector.calls == []


async def test_closing_ends_the_body_as_cancelled_and_its_attempt_settles(stage: Stage):
    await _flying(stage)
    stage.bodies.close_run(RUN_ID, 1, "cancelled by ana: wrong invoice")
    after, requests, end = await stage.listener.next("turned")
    assert (after, requests, end.status) == (0, [], BodyStatus.CANCELLED)
    assert "ana" in end.error.message
    assert (await stage.listener.next("failed"))[3].code == "E_CANCELLED"
    stage.bodies.close_run(RUN_ID, 1, "again")
    stage.deliver(1, "a", value="1")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert stage.listener.told == []


async def test_closing_while_the_definition_is_read_ends_at_zero(stage: Stage):
    stage.start(spec_of(STEPS), start_of(go_until=GO))
    stage.bodies.close_run(RUN_ID, 1, "too late")
    after, _, end = await stage.listener.next("turned")
    assert (after, end.status) == (0, BodyStatus.CANCELLED)
    assert stage.connector.calls == []


async def test_a_dropped_run_is_silent(stage: Stage):
    await _flying(stage)
    stage.bodies.drop(RUN_ID, 1)
    await _stopped(stage)
    stage.deliver(1, "a", value="1")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert stage.listener.told == []


async def test_an_answer_that_was_there_when_the_run_was_dropped_is_late(stage: Stage):
    stage.connector.answers = ['{"charged": 7, "api_key": "k-123"}']
    stage.start(spec_of(STEPS), start_of(go_until=GO))
    async with asyncio.timeout(5):
        await stage.connector.called.wait()  # it has answered in the same round of the loop, and nobody was told yet
    assert [one.name for one in stage.listener.told] == ["turned"]
    stage.bodies.drop(RUN_ID, 1)
    told = await stage.listener.next("late")
    assert told == ("a", 1, "succeeded", '{"charged":7,"api_key":"[redacted]"}', None, 0.0)
    assert [one.name for one in stage.listener.told] == ["turned"]


async def test_an_action_that_answers_in_spite_of_its_cancellation_is_late(stage: Stage):
    await _flying(stage)
    stage.connector.answers_when_stopped = Unavailable("E_UNAVAILABLE", "the upstream is away")
    stage.bodies.drop(RUN_ID, 1)
    item, attempt, status, value, error, _ = await stage.listener.next("late")
    assert (item, attempt, status, value, error.code) == ("a", 1, "failed", None, "E_UNAVAILABLE")


async def test_an_earlier_life_that_answers_late_keeps_its_fence(stage: Stage):
    await _flying(stage)
    stage.connector.answers_when_stopped = '"paid"'
    stage.bodies.start(start_of(fence=2))
    late = await stage.listener.take(lambda one: one.name == "late", "late")
    assert (late.fence, late.arguments[2:4]) == (1, ("succeeded", '"paid"'))
    assert (await stage.listener.take(lambda one: one.name == "turned", "turned")).fence == 2


async def test_a_run_dropped_before_it_began_is_silent(stage: Stage):
    stage.start(spec_of(STEPS), start_of(go_until=GO))
    stage.bodies.drop(RUN_ID, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (stage.listener.told, stage.connector.calls) == ([], [])


async def test_another_fence_is_ignored(stage: Stage):
    await _flying(stage)
    stage.bodies.cancel_step(RUN_ID, 2, "a")
    stage.bodies.drop(RUN_ID, 2)
    stage.bodies.close_run(RUN_ID, 0, "x")
    stage.bodies.run_step(RUN_ID, 2, "a", 1, "t", "k", 1.0)
    stage.deliver(1, "a", value="1", fence=2)
    await asyncio.sleep(0)
    assert (stage.listener.told, len(stage.connector.calls)) == ([], 1)
    assert not stage.connector.stopped.is_set()


async def test_a_newer_life_of_the_run_takes_over(stage: Stage):
    await _flying(stage)
    stage.bodies.start(start_of(fence=2))
    await _stopped(stage)
    told = await stage.listener.take(lambda one: one.name == "turned", "turned")
    assert told.fence == 2
    assert stage.listener.told == []


@pytest.mark.parametrize("answer", [None, '"paid"'])
async def test_aclose_stops_everything_without_a_word(stage: Stage, answer: str | None):
    await _flying(stage)
    stage.connector.answers_when_stopped = answer
    await stage.bodies.aclose()
    assert stage.connector.stopped.is_set()
    assert stage.listener.told == []


@pytest.mark.parametrize("item", ["b", "nothing"])
async def test_a_delivery_that_was_not_asked_for_blocks_the_run(stage: Stage, item: str):
    stage.start(spec_of(STEPS), start_of())
    await stage.listener.next("turned")
    stage.deliver(1, item, value="1")
    [error] = await stage.listener.next("diverged")
    assert (error.code, error.type) == ("E_INTERNAL", "OutOfStep")


async def test_a_success_without_a_value_anywhere_blocks_the_run(stage: Stage):
    stage.start(spec_of(STEPS), start_of())
    await stage.listener.next("turned")
    stage.deliver(1, "a")
    [error] = await stage.listener.next("diverged")
    assert error.type == "OutOfStep"
