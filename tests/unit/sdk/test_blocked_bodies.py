"""What a body must not do blocks the run, whatever the body catches, and names the way out."""

import asyncio
import json
import socket
from typing import Any

import pytest

from anthares44.automation import Context, MisuseError, StepError, StepTimeout, step
from tests.unit.sdk.lives import at, new_run, settings, told


def run(name: str, **more: Any) -> "asyncio.Future[Any]":
    return step.run(name, **{"timeout": 5, "fn": lambda: name} | more)


def block_of(body: Any, **given: Any) -> Any:
    body_run = new_run(body, settings(**given))
    turn = body_run.begin()
    assert body_run.blocked is not None, told(turn)
    return body_run.blocked


async def opens_a_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def serves() -> None:
    await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)


async def goes_to_a_thread() -> None:
    await asyncio.to_thread(print)


async def starts_a_program() -> None:
    await asyncio.create_subprocess_exec("true")


async def starts_a_shell() -> None:
    await asyncio.create_subprocess_shell("true")


async def uses_a_socket() -> None:
    one, other = socket.socketpair()
    with one, other:
        await asyncio.get_running_loop().sock_recv(one, 1)


async def resolves_a_name() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


@pytest.mark.parametrize(
    "does",
    [
        opens_a_connection,
        serves,
        goes_to_a_thread,
        starts_a_program,
        starts_a_shell,
        uses_a_socket,
        resolves_a_name,
    ],
    ids=lambda does: does.__name__,
)
def test_input_and_output_in_a_body(does: Any):
    async def body(ctx: Context, given: Any) -> Any:
        try:
            await does()
        except Exception:  # noqa: BLE001 - a body that swallows everything is blocked all the same
            return "went on"

    block = block_of(body)
    assert block.code == "E_IO_OUTSIDE_STEP"
    assert "step.run" in block.message


def test_an_id_used_twice():
    async def body(ctx: Context, given: Any) -> Any:
        await asyncio.gather(run("a"), run("a"))

    block = block_of(body)
    assert (block.code, block.seen, block.file) == ("E_DUPLICATE_STEP_ID", "a", "test_blocked_bodies.py")


def test_an_id_shared_by_a_sleep_and_an_earlier_step():
    async def body(ctx: Context, given: Any) -> Any:
        await run("a")
        await step.sleep("a", "1s")

    body_run = new_run(body)
    body_run.begin()
    body_run.deliver(1, "a", "succeeded", at=at(1), value="1")
    assert body_run.blocked is not None
    assert body_run.blocked.code == "E_DUPLICATE_STEP_ID"


def test_a_step_without_timeout_does_not_run():
    async def body(ctx: Context, given: Any) -> Any:
        await step.run("a", fn=lambda: 1)  # type: ignore[call-overload]

    body_run = new_run(body)
    assert told(body_run.begin())[1] == []
    assert body_run.blocked is not None
    assert body_run.blocked.code == "E_STEP_TIMEOUT_MISSING"
    assert 'timeout="30s"' in body_run.blocked.message


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"timeout": "ten"}, "'ten' is no duration"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": -1}, "between 0 and ten years"),
        ({"timeout": True}, "True is no duration"),
        ({"timeout": [1]}, "unhashable"),
        ({"retry": 3}, "must be a mapping"),
        ({"retry": {"max": 0}}, "at least 1"),
        ({"retry": {"max": True}}, "at least 1"),
        ({"retry": {"max": 10**9}}, "at most 1000000"),
        ({"retry": {"tries": 3}}, "unknown fields tries"),
        ({"retry": {"strategy": "linear"}}, "known is exponential-jitter"),
        ({"retry": {"base": "soon"}}, "retry.base of step 'a'"),
        ({"fn": 3}, "must be a function"),
        ({"compensate": "drop"}, "must be a function"),
    ],
)
def test_a_declaration_that_cannot_be_used(call: dict[str, Any], said: str):
    async def body(ctx: Context, given: Any) -> Any:
        await run("a", **call)

    block = block_of(body)
    assert block.code == "E_SPEC_INVALID"
    assert said in block.message


@pytest.mark.parametrize("step_id", ["", " ", "~a", "a\nb", "x" * 129, 7, None])
def test_an_id_that_cannot_be_used(step_id: Any):
    async def body(ctx: Context, given: Any) -> Any:
        await run(step_id)

    assert block_of(body).code == "E_SPEC_INVALID"


def test_terms_of_a_step_are_filled_in():
    async def body(ctx: Context, given: Any) -> Any:
        run("a", timeout="120s", retry={"max": 4, "cap": "1m"}, compensate=print)
        run("b", exclusive=True)
        await asyncio.Future()

    turn = new_run(body).begin()
    first, second = (json.loads(request.request(0, None)) for request in turn.requests)
    assert first == {
        "item": "a",
        "kind": "step",
        "timeout": 120.0,
        "retry": {"max": 4, "strategy": "exponential-jitter", "base": 1.0, "cap": 60.0},
        "compensate": True,
        "exclusive": False,
        "started": False,
        "token": None,
    }
    assert second["retry"] == {"max": 3, "strategy": "exponential-jitter", "base": 1.0, "cap": 300.0}
    assert second["exclusive"] is True


def test_a_body_that_polls_is_stopped():
    async def body(ctx: Context, given: Any) -> Any:
        future = run("a")
        while not future.done():  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    assert block_of(body).code == "E_BODY_SPINS"


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), 1e12])
def test_a_delay_that_never_ends(delay: float):
    async def body(ctx: Context, given: Any) -> Any:
        asyncio.get_running_loop().call_later(delay, print)

    assert block_of(body).code == "E_SPEC_INVALID"


def test_more_items_than_a_run_may_have():
    async def body(ctx: Context, given: Any) -> Any:
        await asyncio.gather(*(run(f"s{n}") for n in range(11)))

    assert block_of(body, items=10).code == "E_ITEM_LIMIT"


def test_an_outcome_that_was_not_asked_for():
    async def body(ctx: Context, given: Any) -> Any:
        await run("a")

    body_run = new_run(body)
    body_run.begin()
    body_run.deliver(1, "b", "succeeded", at=at(1), value="1")
    assert body_run.blocked is not None
    assert body_run.blocked.expected == "b"


def test_a_step_outside_of_any_run():
    with pytest.raises(RuntimeError, match="only in the body of a workflow"):
        run("a")


def test_after_a_block_every_call_is_refused():
    refused = []

    async def body(ctx: Context, given: Any) -> Any:
        try:
            await asyncio.gather(run("a"), run("a"))
        except BaseException as first:
            for call in (lambda: run("b"), lambda: step.sleep("c", 1)):
                try:
                    call()
                except BaseException as error:  # noqa: BLE001
                    refused.append(type(error).__name__)
            raise first from None

    assert block_of(body).code == "E_DUPLICATE_STEP_ID"
    assert refused == ["BlockedRun", "BlockedRun"]


def test_forgetting_a_run_runs_its_way_out_quietly(capfd: pytest.CaptureFixture[str]):
    left = []

    async def body(ctx: Context, given: Any) -> Any:
        try:
            await asyncio.gather(run("a"), run("b"))
        finally:
            left.append("out")
            await run("c")
            left.append("never")

    body_run = new_run(body)
    body_run.begin()
    body_run.forget()
    del body_run
    assert left == ["out"]
    assert capfd.readouterr() == ("", "")


def test_closing_cancels_the_body_and_refuses_its_calls():
    seen = []

    async def body(ctx: Context, given: Any) -> Any:
        try:
            await run("a")
        except asyncio.CancelledError:
            seen.append("cancelled")
            for ask in (lambda: run("b"), lambda: asyncio.get_running_loop().call_later(1, print)):
                with pytest.raises(asyncio.CancelledError, match="closed"):
                    ask()
            raise

    body_run = new_run(body)
    body_run.begin()
    assert told(body_run.close()) == (0, [], {"status": "cancelled"})
    assert seen == ["cancelled"]


def test_a_body_that_swallows_its_cancellation_has_not_ended():
    async def body(ctx: Context, given: Any) -> Any:
        kept = run("a")
        try:
            await asyncio.shield(kept)
        except asyncio.CancelledError:
            await kept
        return "anyway"

    body_run = new_run(body)
    body_run.begin()
    assert told(body_run.close()) == (0, [], None)
    assert body_run.deliver(1, "a", "succeeded", at=at(1), value="1").ended == {"status": "cancelled"}


@pytest.mark.parametrize(
    ("raised", "code", "kind", "message"),
    [
        (ValueError("no"), "E_WORKFLOW_FAILED", "ValueError", "no"),
        (SystemExit(3), "E_WORKFLOW_FAILED", "SystemExit", "3"),
        (asyncio.CancelledError(), "E_CANCELLED", "asyncio.exceptions.CancelledError", "from inside"),
        (StepError("sent", code="E_UPSTREAM_503", kind="Gone"), "E_UPSTREAM_503", "Gone", "sent"),
        (ExceptionGroup("g", [ValueError("one"), KeyError("k")]), "E_WORKFLOW_FAILED", "ValueError", "(and 1 more)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_body_that_raises_has_failed(raised: BaseException, code: str, kind: str, message: str):
    async def body(ctx: Context, given: Any) -> Any:
        await run("a")
        raise raised

    body_run = new_run(body)
    body_run.begin()
    ended = body_run.deliver(1, "a", "succeeded", at=at(1), value="1").ended
    assert ended is not None
    error = ended["error"]
    assert ended["status"] == "failed"
    assert (error["code"], error["type"], error["retryable"]) == (code, kind, False)
    assert message in error["message"]


def test_a_result_that_cannot_be_kept_fails_the_run():
    async def body(ctx: Context, given: Any) -> Any:
        return {"at": float("nan")}

    ended = new_run(body).begin().ended
    assert ended is not None
    assert ended["error"]["code"] == "E_RESULT_NOT_JSON"
    assert ended["error"]["message"] == "result.at: nan is no JSON number; return None or text"


def test_a_failed_step_raises_at_its_await():
    async def body(ctx: Context, given: Any) -> Any:
        caught = []
        for name in ("a", "b"):
            try:
                await run(name)
            except StepTimeout as error:
                caught.append(["timeout", error.code, error.type])
            except StepError as error:
                caught.append(["failed", error.code, error.message])
        return caught

    body_run = new_run(body)
    body_run.begin()
    late = {"code": "E_STEP_TIMEOUT", "type": "StepTimeout", "message": "late"}
    body_run.deliver(1, "a", "failed", at=at(1), error=late)
    ended = body_run.deliver(2, "b", "failed", at=at(2), error={"code": "E_X", "type": "T", "message": "m"}).ended
    assert ended == {
        "status": "succeeded",
        "value": '[["timeout","E_STEP_TIMEOUT","StepTimeout"],["failed","E_X","m"]]',
    }


def test_a_lost_failure_is_written_to_the_log():
    async def body(ctx: Context, given: Any) -> Any:
        async def loses() -> None:
            raise ValueError("lost")

        asyncio.create_task(loses(), name="loser")  # noqa: RUF006 - that is the mistake
        await asyncio.sleep(0)

    lines: list[dict[str, Any]] = []
    body_run = new_run(body, settings(lines))
    body_run.begin()
    assert [line["text"] for line in lines] == ["loser failed and was never awaited: ValueError('lost')"]


def test_misuse_is_permanent():
    assert issubclass(MisuseError, Exception)
    from anthares44.automation.errors import to_wire  # noqa: PLC0415

    assert to_wire(MisuseError("m", code="E_STEP_INSIDE_STEP"), "")["retryable"] is False
