"""What authors declare: durations, workflows, errors; and chance that any language can draw alike."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from anthares44.automation import Context, PermanentError, RetryableError, StepError, step, workflow
from anthares44.automation.chance import identifier, number, place_in_body, place_in_step
from anthares44.automation.durations import seconds_of
from anthares44.automation.errors import bounded, message_of, to_wire, type_of
from anthares44.automation.workflow import declared, find_workflow
from tests.unit.sdk.lives import at, new_run


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10.0),
        ("1.5s", 1.5),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        (0, 0.0),
        (3, 3.0),
        (0.1, 0.1),
        ("0s", 0.0),
    ],
)
def test_durations(written: Any, seconds: float):
    assert seconds_of(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "10", "s", "10 s", "-1s", "10S", "1e3s", "٣s", "10s ", "99999d", -1, float("nan"), float("inf"), True, None],
)
def test_what_is_no_duration(written: Any):
    with pytest.raises(ValueError, match=r"duration"):
        seconds_of(written)


def test_a_workflow_is_found_by_its_published_version():
    @workflow("found-by-version", version=3, concurrency={"max": 5, "partition_key": "input.tenant"})
    async def body(ctx: Context, given: Any) -> Any:
        return given

    found = find_workflow("found-by-version", "3")
    assert found is not None
    assert found.body is body
    assert found.concurrency == {"max": 5, "partition_key": "input.tenant"}
    assert found in declared()
    assert find_workflow("found-by-version", "3-dev.12") is found
    for version in ("4", "30", "dev", "", "-3"):
        assert find_workflow("found-by-version", version) is None


@pytest.mark.parametrize("version", [0, -1, True, "4", 1.5, None])
def test_a_version_is_a_positive_integer(version: Any):
    with pytest.raises(ValueError, match="version must be an integer"):
        workflow("w", version=version)


@pytest.mark.parametrize(
    "concurrency",
    [{"max": 0}, {"max": True}, {"limit": 1}, {"partition_key": " "}, {"partitionKey": "x"}],
)
def test_concurrency_is_checked(concurrency: dict[str, Any]):
    with pytest.raises(ValueError, match="concurrency"):
        workflow("w", version=1, concurrency=concurrency)


@pytest.mark.parametrize("deadline", ["0s", "soon", -1, True, [1]])
def test_a_deadline_is_a_duration_above_zero(deadline: Any):
    with pytest.raises(ValueError, match="deadline"):
        workflow("w", version=1, deadline=deadline)


def test_a_body_is_a_coroutine_function_of_two():
    with pytest.raises(TypeError, match="async def"):

        @workflow("w", version=1)
        def plain(ctx: Context, given: Any) -> Any:
            return given

    with pytest.raises(TypeError, match=r"must take \(ctx, input\)"):

        @workflow("w", version=1)
        async def alone(ctx: Context) -> Any:
            return ctx


def test_a_workflow_is_declared_once():
    def declare() -> None:
        @workflow("twice", version=1)
        async def body(ctx: Context, given: Any) -> Any:
            return given

    declare()
    declare()  # the same code again: a file imported twice
    with pytest.raises(ValueError, match="declared twice"):

        @workflow("twice", version=1)
        async def other(ctx: Context, given: Any) -> Any:
            return ctx


def test_chance_is_the_same_in_every_language():
    assert number("seed", 0, place_in_body(0), 0) == 0.06980572542134311
    assert number("seed", 0, place_in_body(7), 1) == 0.7867074831718689
    assert number("seed", 1, place_in_step("create-tenant"), 0) == 0.34559208845882816
    assert identifier("seed", 0, place_in_body(0), 1) == UUID("c4dda115-b3e5-41f1-b534-88634a2db8e9")


def test_chance_depends_on_the_turn_and_the_draw_only():
    async def body(ctx: Context, given: Any) -> Any:
        drawn = [ctx.random(), ctx.random(), str(ctx.uuid())]
        await step.run("a", timeout=1, fn=lambda: 1)
        return [*drawn, ctx.random()]

    def result(**start: Any) -> Any:
        run = new_run(body, **start)
        run.begin()
        return run.deliver(1, "a", "succeeded", at=at(1), value="1").ended

    first = result()
    assert first == result()
    assert first != result(seed="other")
    assert first != result(generation=1)


def test_a_context_tells_of_its_run():
    async def body(ctx: Context, given: Any) -> Any:
        return [ctx.run_id, ctx.workflow, ctx.version, ctx.input, given, ctx.idempotency_key]

    ended = new_run(body, version="3-dev.2").begin().ended
    assert ended == {"status": "succeeded", "value": '["run_1","w","3-dev.2",{"name":"n"},{"name":"n"},"key"]'}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no"), {"code": "E_STEP_FAILED", "type": "ValueError", "retryable": True, "retry_after": None}),
        (PermanentError("no"), {"code": "E_STEP_FAILED", "retryable": False}),
        (PermanentError("no", code="card stolen"), {"code": "E_STEP_FAILED"}),
        (PermanentError("no", code=7), {"code": "E_STEP_FAILED"}),  # type: ignore[arg-type]
        (RetryableError("no", retry_after=float("nan")), {"retry_after": None}),
        (RetryableError("no", retry_after=float("inf")), {"retry_after": 366 * 86400.0}),
        (RetryableError("no", retry_after="soon"), {"retry_after": None}),  # type: ignore[arg-type]
        (RetryableError("no", retry_after=-1), {"retry_after": None}),
        (StepError("no", code="E_X", kind="\x00"), {"code": "E_X", "type": "StepError"}),
        (PermanentError("no", code="E_CARD"), {"code": "E_CARD", "retryable": False, "message": "no"}),
        (RetryableError("no", retry_after=7), {"retryable": True, "retry_after": 7}),
        (asyncio.CancelledError(), {"type": "asyncio.exceptions.CancelledError", "message": "", "retryable": True}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_cross_by_class(error: BaseException, expected: dict[str, Any]):
    crossed = to_wire(error, "")
    assert {name: crossed[name] for name in expected} == expected


def test_messages_are_bounded_and_storable():
    assert bounded("é" * 3000).encode().__len__() <= 2048
    assert bounded("é" * 3000).endswith("…")
    assert bounded("a\x00b\udcff") == "a\\x00b\\udcff"
    assert type_of(PermanentError()) == "PermanentError"


def test_an_error_that_cannot_be_read_is_still_told():
    class MuteError(Exception):
        def __str__(self) -> str:
            raise OSError("mute")

    assert message_of(MuteError()) == "(no text: OSError while reading the error)"


def test_an_error_crosses_without_what_looks_like_a_secret() -> None:
    told = {"user": "maria", "password": "hunter2"}
    crossed = to_wire(ValueError(f"refused {told} at https://maria:hunter2@api.example/?access_token=hunter2&n=1"), "")
    assert crossed["message"] == (
        "refused {'user': 'maria', 'password': '[redacted]'} at https://[redacted]@api.example/?access_token=[redacted]&n=1"
    )


def test_an_endless_message_is_cut_before_it_is_looked_at() -> None:
    crossed = to_wire(ValueError("password=" + "x" * 50_000_000), "")
    assert crossed["message"] == "password=[redacted]"
