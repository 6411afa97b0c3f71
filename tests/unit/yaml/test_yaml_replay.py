"""A YAML body comes back to where it was, or says where definition and log part."""

import pytest

from processors.engine.requests import BodyStatus, SkipRequest, SleepRequest
from processors.ports.bodies import Past
from schemas.records import ErrorInfo
from tests.support.yaml_runs import RUN_ID, past, spec_of, start_of
from tests.support.yaml_stage import Stage

STEPS = """
- {id: a, uses: connector/x.y, timeout: 1s}
- {id: pause, uses: sleep, duration: 30s}
- {id: maybe, uses: connector/x.y, timeout: 1s, if: "steps.a == 2"}
- {id: last, uses: connector/x.y, timeout: 1s}
"""
GO = 101.0
A = past(1, "a", 0)
PAUSE = past(3, "pause", 1, kind="sleep", value=None)
MAYBE = past(4, "maybe", 3, "skipped")


async def test_settled_items_are_not_asked_for_again(stage: Stage):
    stage.start(spec_of(STEPS), start_of(history=[A, PAUSE, MAYBE], go_until=GO))
    after, [request], end = await stage.listener.next("turned")
    assert (after, request.item, request.started, end) == (4, "last", True, None)
    assert [call.step_id for call in stage.connector.calls] == ["last"] or not stage.connector.calls


async def test_history_is_played_in_order_of_seq(stage: Stage):
    stage.start(spec_of(STEPS), start_of(history=[MAYBE, PAUSE, A]))
    after, _, _ = await stage.listener.next("turned")
    assert after == 4


async def test_an_unsettled_step_is_asked_for_and_left_to_the_engine(stage: Stage):
    history = [A, PAUSE, MAYBE, past(5, "last", 4, None)]
    stage.start(spec_of(STEPS), start_of(history=history, go_until=GO))
    after, [request], _ = await stage.listener.next("turned")
    assert (after, request.item, request.started, request.token) == (4, "last", False, None)
    stage.connector.answers.append("9")
    stage.bodies.run_step(RUN_ID, 1, "last", 2, "t2", "k", 1.0)
    assert (await stage.listener.next("succeeded"))[:4] == ("last", 2, "t2", "9")
    stage.deliver(6, "last")
    _, _, end = await stage.listener.next("turned")
    assert end.value == '{"a":1,"pause":null,"maybe":null,"last":9}'


async def test_an_unsettled_first_step_is_asked_for_at_zero(stage: Stage):
    stage.start(spec_of(STEPS), start_of(history=[past(1, "a", 0, None)], go_until=GO))
    after, [request], _ = await stage.listener.next("turned")
    assert (after, request.item, request.started) == (0, "a", False)


async def test_a_sleep_that_goes_on_is_asked_for_again(stage: Stage):
    stage.start(spec_of(STEPS), start_of(history=[A, past(2, "pause", 1, None, kind="sleep")]))
    assert await stage.listener.next("turned") == (1, [SleepRequest("pause", 30.0)], None)


async def test_a_skip_that_was_not_recorded_is_asked_for(stage: Stage):
    stage.start(spec_of(STEPS), start_of(history=[A, PAUSE]))
    assert await stage.listener.next("turned") == (3, [SkipRequest("maybe")], None)


async def test_a_recorded_failure_ends_the_body_again(stage: Stage):
    error = ErrorInfo("E_UPSTREAM_422", "UpstreamStatus", "no", retryable=False)
    stage.start(spec_of(STEPS), start_of(history=[past(2, "a", 0, "failed", error=error)]))
    after, requests, end = await stage.listener.next("turned")
    assert (after, requests, end.status, end.error) == (2, [], BodyStatus.FAILED, error)


async def test_a_finished_history_gives_the_same_result_as_the_run_did(stage: Stage):
    history = [A, PAUSE, MAYBE, past(5, "last", 4, value='{"n":1.0}')]
    stage.start(spec_of(STEPS), start_of(history=history))
    after, _, end = await stage.listener.next("turned")
    assert (after, end.value) == (5, '{"a":1,"pause":null,"maybe":null,"last":{"n":1.0}}')


@pytest.mark.parametrize(
    ("history", "names"),
    [
        ([past(1, "renamed", 0)], ["'renamed'", "'a'"]),
        ([past(2, "a", 1)], ["after record 1", "after record 0"]),
        ([A, past(3, "pause", 1, value="1")], ["a step 'pause'", "a sleep 'pause'"]),
        ([A, PAUSE, past(4, "maybe", 3)], ["a step 'maybe'", "a skipped step 'maybe'"]),
        ([A, PAUSE, past(4, "maybe", 3, None)], ["a step 'maybe'", "a skipped step 'maybe'"]),
        ([past(1, "a", 0, "skipped")], ["a skipped step 'a'", "a step 'a'"]),
        ([A, past(2, "last", 1, None)], ["'last'", "a sleep 'pause'"]),
        ([A, PAUSE, MAYBE, past(5, "last", 4), past(6, "more", 5)], ["'more'", "nothing more"]),
        ([past(2, "a", 0, "failed"), past(3, "pause", 2, None, kind="sleep")], ["'pause'", "nothing more"]),
        ([past(1, "a", 0, None), past(2, "b", 0, None)], ["'b'", "'a'"]),
    ],
)
async def test_divergence_names_what_was_recorded_and_what_is_asked(
    stage: Stage, history: list[Past], names: list[str]
):
    stage.start(spec_of(STEPS), start_of(history=history, go_until=GO))
    [error] = await stage.listener.next("diverged")
    assert (error.code, error.retryable) == ("E_NONDETERMINISTIC_REPLAY", False)
    for name in names:
        assert name in error.message
    assert stage.listener.told == []
    assert stage.connector.calls == []
