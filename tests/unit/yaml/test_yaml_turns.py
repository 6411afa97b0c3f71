"""A YAML body answers each delivery with one turn and starts what it may start."""

import asyncio
import json

import pytest

from processors.engine.requests import BodyStatus, RetryPolicy, SkipRequest, SleepRequest, StepRequest
from processors.ports.actions import StepFailure
from processors.runtime.yaml_body import YamlBodies
from schemas.errors import Refused, Unavailable
from schemas.records import ErrorInfo
from tests.support.yaml_listener import RememberingListener
from tests.support.yaml_runs import RUN_ID, spec_of, start_of
from tests.support.yaml_stage import Stage
from topology.workflows import WorkflowSpec

TWO_STEPS = """
- id: reserve-funds
  uses: connector/payments.authorize
  timeout: 15s
  retry: { max: 5, strategy: exponential-jitter, base: 2s, cap: 30s }
  compensate: connector/payments.void
- id: mark-paid
  uses: sql/execute
  timeout: 5s
  query: "update invoices set status='paid' where id = $1"
"""
GO = 101.0


async def test_a_run_goes_through_its_steps_and_ends_with_their_results(stage: Stage):
    stage.connector.answers.append('{"id": "auth_1"}')
    stage.sql.answers.append('{"rowcount": 1}')
    stage.start(spec_of(TWO_STEPS), start_of(go_until=GO))

    retry = RetryPolicy(5, 2.0, 30.0, "exponential-jitter")
    asked = StepRequest("reserve-funds", 15.0, retry, compensate=True, started=True, token="y1")
    assert await stage.listener.next("turned") == (0, [asked], None)
    assert (await stage.listener.next("succeeded"))[:4] == ("reserve-funds", 1, "y1", '{"id":"auth_1"}')

    stage.deliver(1, "reserve-funds", go_until=GO)
    asked = StepRequest("mark-paid", 5.0, started=True, token="y2")
    assert await stage.listener.next("turned") == (1, [asked], None)
    await stage.listener.next("succeeded")

    stage.deliver(2, "mark-paid")
    after, requests, end = await stage.listener.next("turned")
    assert (after, requests, end.status) == (2, [], BodyStatus.SUCCEEDED)
    assert end.value == '{"reserve-funds":{"id":"auth_1"},"mark-paid":{"rowcount":1}}'
    assert stage.listener.told == []


@pytest.mark.parametrize("go_until", [None, 100.0, 99.0])
async def test_without_leave_nothing_starts_by_itself(stage: Stage, go_until: float | None):
    stage.start(spec_of(TWO_STEPS), start_of(go_until=go_until))
    _, [request], _ = await stage.listener.next("turned")
    assert (request.started, request.token) == (False, None)
    assert stage.connector.calls == []

    stage.connector.answers.append("7")
    stage.bodies.run_step(RUN_ID, 1, "reserve-funds", 3, "t9", "the-key", 2.5)
    assert (await stage.listener.next("succeeded"))[:4] == ("reserve-funds", 3, "t9", "7")
    [call] = stage.connector.calls
    assert (call.attempt, call.idempotency_key, call.timeout) == (3, "the-key", 2.5)


async def test_a_self_started_attempt_has_the_key_of_run_item_and_generation(stage: Stage):
    stage.connector.answers.append("null")
    stage.start(spec_of(TWO_STEPS), start_of(go_until=GO, generation=3))
    await stage.listener.next("succeeded")
    [call] = stage.connector.calls
    assert call.idempotency_key == f"{RUN_ID}:reserve-funds:g3"
    assert call.scope["step"] == {"id": "reserve-funds", "idempotency_key": f"{RUN_ID}:reserve-funds:g3"}
    assert (call.project_id, call.lane, call.timeout) == ("pj_shop", "lane_1", 15.0)
    assert call.scope["run"]["lane"] == "lane_1"
    assert call.scope["event"]["occurred_at"] == "2026-07-19T14:02:11.884000Z"


async def test_a_false_if_asks_for_a_skip_and_leaves_null(stage: Stage):
    steps = """
- id: review
  uses: connector/desk.open
  timeout: 1s
  if: "input.amount > 100"
- id: notify
  uses: connector/desk.tell
  timeout: 1s
  if: "steps['review'] == null"
"""
    stage.start(spec_of(steps), start_of(given='{"amount":5}', go_until=GO))
    assert await stage.listener.next("turned") == (0, [SkipRequest("review")], None)
    stage.deliver(1, "review", "skipped", go_until=GO)
    after, [request], _ = await stage.listener.next("turned")
    assert (after, request.item, request.started) == (1, "notify", True)


async def test_a_condition_that_cannot_be_evaluated_ends_the_run(stage: Stage):
    stage.start(spec_of("- {id: a, uses: connector/x.y, timeout: 1s, if: 'input.missing > 1'}"), start_of(go_until=GO))
    _, requests, end = await stage.listener.next("turned")
    assert (requests, end.status, end.error.code, end.error.retryable) == (
        [], BodyStatus.FAILED, "E_EXPRESSION", False,
    )  # fmt: skip
    assert end.error.message.startswith("`if` of the step a: ")


async def test_sleep_is_asked_for_and_never_started(stage: Stage):
    stage.start(spec_of("- {id: cooldown, uses: sleep, duration: 30s}"), start_of(go_until=GO))
    assert await stage.listener.next("turned") == (0, [SleepRequest("cooldown", 30.0)], None)
    stage.deliver(2, "cooldown")
    _, _, end = await stage.listener.next("turned")
    assert end.value == '{"cooldown":null}'


async def test_output_is_rendered_exactly_and_redacted(stage: Stage):
    spec = spec_of(
        "- {id: get-it, uses: connector/x.y, timeout: 1s}",
        output="""{ big: "{{ steps['get-it'].n }}", w: "{{ steps['get-it'].w }}", token: t, e: "{{ event.id }}" }""",
    )
    stage.connector.answers.append('{"n": 1180591620717411303424, "w": 1.0}')
    stage.start(spec, start_of(go_until=GO))
    await stage.listener.next("succeeded")
    stage.deliver(1, "get-it")
    await stage.listener.next("turned")
    _, _, end = await stage.listener.next("turned")
    assert end.value == '{"big":1180591620717411303424,"w":1.0,"token":"[redacted]","e":"evt_1"}'


async def test_an_output_that_cannot_be_rendered_fails_the_run(stage: Stage):
    spec = spec_of("- {id: wait, uses: sleep, duration: 1s}", output='"{{ input.nothing }}"')
    stage.start(spec, start_of())
    await stage.listener.next("turned")
    stage.deliver(1, "wait")
    _, _, end = await stage.listener.next("turned")
    assert (end.status, end.error.code) == (BodyStatus.FAILED, "E_EXPRESSION")
    assert end.error.message.startswith("`output`: ")


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
async def test_a_failed_step_ends_the_body_with_its_error(stage: Stage, outcome: str):
    error = ErrorInfo("E_UPSTREAM_422", "UpstreamStatus", "no", retryable=False)
    stage.start(spec_of(TWO_STEPS), start_of())
    await stage.listener.next("turned")
    stage.deliver(1, "reserve-funds", outcome, error=error)
    after, requests, end = await stage.listener.next("turned")
    assert (after, requests, end.status, end.error) == (1, [], BodyStatus.FAILED, error)


async def test_a_delivered_value_wins_over_the_returned_one(stage: Stage):
    stage.start(spec_of(TWO_STEPS), start_of())
    await stage.listener.next("turned")
    stage.deliver(1, "reserve-funds", value='{"recorded":true}')
    await stage.listener.next("turned")
    stage.sql.answers.append("1")
    stage.bodies.run_step(RUN_ID, 1, "mark-paid", 1, "t", "k", 1.0)
    await stage.listener.next("succeeded")
    assert stage.sql.calls[0].scope["steps"] == {"reserve-funds": {"recorded": True}}


@pytest.mark.parametrize(
    ("raised", "code", "retryable"),
    [
        (StepFailure(ErrorInfo("E_UPSTREAM_503", "UpstreamStatus", "busy", retry_after=7.0)), "E_UPSTREAM_503", True),
        (Refused("E_SECRET_UNKNOWN", "not set"), "E_SECRET_UNKNOWN", False),
        (Unavailable("E_UNAVAILABLE", "away"), "E_UNAVAILABLE", True),
        (ZeroDivisionError("secret text"), "E_INTERNAL", True),
        (TimeoutError("of somebody else"), "E_INTERNAL", True),
        (asyncio.CancelledError(), "E_INTERNAL", True),
    ],
)
async def test_whatever_an_action_raises_is_an_error_of_its_attempt(
    stage: Stage, raised: BaseException, code: str, retryable: bool
):
    stage.connector.answers.append(raised)
    stage.start(spec_of(TWO_STEPS), start_of(go_until=GO))
    item, attempt, token, error, cost = await stage.listener.next("failed")
    assert (item, attempt, token, error.code, error.retryable) == ("reserve-funds", 1, "y1", code, retryable)
    assert "secret text" not in error.message
    assert cost == 0.0
    if isinstance(raised, StepFailure):
        assert error is raised.error


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": NaN}', "E_RESULT_NOT_JSON"),
        ('"\\u0000"', "E_RESULT_NOT_JSON"),
        ('["\\ud800"]', "E_RESULT_NOT_JSON"),
        ('{"a":1,"a":2}', "E_RESULT_NOT_JSON"),
        ("not json", "E_RESULT_NOT_JSON"),
        (json.dumps("x" * 262_143), "E_RESULT_TOO_LARGE"),
    ],
)
async def test_a_result_that_cannot_be_recorded_is_a_permanent_failure(stage: Stage, text: str, code: str):
    stage.connector.answers.append(text)
    stage.start(spec_of(TWO_STEPS), start_of(go_until=GO))
    _, _, _, error, _ = await stage.listener.next("failed")
    assert (error.code, error.retryable) == (code, False)


async def test_results_are_redacted_before_the_workflow_sees_them(stage: Stage):
    stage.connector.answers.append('{"clientSecret": "s", "maxOutputTokens": 400}')
    stage.start(spec_of(TWO_STEPS), start_of(go_until=GO))
    redacted = '{"clientSecret":"[redacted]","maxOutputTokens":400}'
    assert (await stage.listener.next("succeeded"))[3] == redacted
    stage.deliver(1, "reserve-funds", go_until=GO)
    async with asyncio.timeout(5):
        await stage.sql.called.wait()
    assert stage.sql.calls[0].scope["steps"]["reserve-funds"] == json.loads(redacted)


async def test_an_action_that_does_not_keep_its_timeout_is_cut(stage: Stage):
    stage.start(spec_of(TWO_STEPS.replace("15s", "20ms")), start_of(go_until=GO))
    _, _, _, error, _ = await stage.listener.next("failed")
    assert (error.code, error.retryable) == ("E_STEP_TIMEOUT", True)
    assert stage.connector.stopped.is_set()


@pytest.mark.parametrize("trouble", [Refused("E_VERSION_UNKNOWN", "gone"), KeyError("odd")])
async def test_a_definition_that_cannot_be_read_at_all_blocks_the_run(stage: Stage, trouble: Exception):
    stage.start(trouble, start_of())
    [error] = await stage.listener.next("diverged")
    assert error.code == ("E_VERSION_UNKNOWN" if isinstance(trouble, Refused) else "E_INTERNAL")


async def test_definitions_are_kept(stage: Stage):
    stage.start(spec_of("- {id: a, uses: sleep, duration: 1s}"), start_of())
    await stage.listener.next("turned")
    stage.start(Refused("E_VERSION_UNKNOWN", "asked again"), start_of(fence=2))
    await stage.listener.next("turned")


async def test_both_actions_are_needed():
    async def definition(_: int) -> WorkflowSpec:
        raise AssertionError

    with pytest.raises(ValueError, match="connector, sql/execute"):
        YamlBodies(RememberingListener(), definition, {})
