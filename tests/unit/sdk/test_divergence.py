"""A body that takes another way than its history is blocked, and says what was expected, seen, and where."""

import asyncio
import json
from typing import Any

import pytest

from anthares44.automation import Context, StepError, step
from anthares44.automation.items import Block
from anthares44.automation.replay import Replay
from tests.unit.sdk.lives import at, new_run, settings, told


def record(seq: int, item: str, after: int, status: str = "succeeded", kind: str = "step") -> dict[str, Any]:
    entry = {"seq": seq, "item": item, "kind": kind, "after": after, "status": status, "at": at(seq)}
    return entry | ({"value": f'"{item}"'} if status == "succeeded" and kind == "step" else {})


def replayed(body: Any, *history: dict[str, Any]) -> Any:
    run = new_run(body)
    turn = Replay(run, history).play(1000)
    assert turn is not None
    return run, turn


def blocked(body: Any, *history: dict[str, Any]) -> Block:
    run, _ = replayed(body, *history)
    assert run.blocked is not None
    assert run.blocked.code == "E_NONDETERMINISTIC_REPLAY"
    return run.blocked


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123
        lines = [n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}")]
    assert len(lines) == 1
    return lines[0]


def run(name: str) -> "asyncio.Future[Any]":
    return step.run(name, timeout=5, fn=lambda: name)


async def two(ctx: Context, given: Any) -> Any:
    first = await step.run("a", timeout=5, fn=lambda: 1)
    second = await step.run("b", timeout=5, fn=lambda: 1)  # line of b
    return [first, second]


def test_another_id_names_expected_seen_and_line():
    block = blocked(two, record(1, "a", 0), record(2, "c", 1))
    assert block.expected == "step 'c' after 1"
    assert block.seen == "step 'b' after 1"
    assert (block.file, block.line) == ("test_divergence.py", line_of("line of b"))
    assert "expected step 'c' after 1, seen step 'b' after 1 at test_divergence.py:" in block.message


def test_the_same_item_after_another_delivery():
    block = blocked(two, record(1, "b", 0), record(2, "a", 0))
    assert block.expected == "step 'b' after 0"
    assert block.seen == "step 'a' after 0"


def test_an_item_asked_for_too_early():
    async def body(ctx: Context, given: Any) -> Any:
        await asyncio.gather(run("a"), run("b"))

    block = blocked(body, record(1, "a", 0), record(2, "b", 1))
    assert (block.expected, block.seen) == ("step 'b' after 1", "step 'b' after 0")


def test_another_kind_under_the_same_id():
    async def body(ctx: Context, given: Any) -> Any:
        await step.sleep("a", "5s")

    block = blocked(body, record(1, "a", 0))
    assert (block.expected, block.seen) == ("step 'a' after 0", "sleep 'a' after 0")


def test_a_body_that_waits_where_more_was_asked_for_names_the_waiting_line():
    async def inner(future: "asyncio.Future[Any]") -> Any:
        return await future  # the waiting line

    async def body(ctx: Context, given: Any) -> Any:
        first, second = run("a"), run("b")
        await first
        return await inner(second)

    block = blocked(body, record(1, "a", 0), record(2, "c", 1))
    assert (block.expected, block.seen) == ("step 'c' after 1", "a body that waits")
    assert block.line == line_of("the waiting line")


def test_a_body_that_ends_where_more_was_asked_for():
    async def body(ctx: Context, given: Any) -> Any:
        return await run("a")

    block = blocked(body, record(1, "a", 0), record(2, "b", 1))
    assert block.seen == "the end of the body (succeeded)"


def test_a_body_that_ends_with_outcomes_left():
    async def body(ctx: Context, given: Any) -> Any:
        run("late")
        return await run("a")

    block = blocked(body, record(1, "a", 0), record(2, "late", 0))
    assert block.seen == "the end of the body with 1 outcomes left"
    assert block.expected == "the outcome 2 of step 'late' to be awaited"
    assert block.line == body.__code__.co_firstlineno


def test_a_record_that_the_body_let_an_item_go_may_come_after_its_end():
    async def body(ctx: Context, given: Any) -> Any:
        slow = run("slow")
        await run("a")
        slow.cancel()

    run_, turn = replayed(body, record(1, "a", 0), record(2, "slow", 0, "cancelled"))
    assert run_.blocked is None
    assert turn.ended == {"status": "succeeded", "value": "null"}


def test_order_inside_a_turn_is_free():
    async def body(ctx: Context, given: Any) -> Any:
        return await asyncio.gather(run("b"), run("a"))

    _, turn = replayed(body, record(1, "a", 0), record(2, "b", 0))
    assert turn.ended == {"status": "succeeded", "value": '["b","a"]'}


def test_what_has_no_settled_outcome_is_asked_for_again_with_its_own_after():
    async def body(ctx: Context, given: Any) -> Any:
        flying = run("flying")
        await run("a")
        waiting = step.sleep("nap", "10s")
        await run("b")
        await asyncio.gather(flying, waiting, run("c"))

    history = [record(1, "a", 0), record(2, "nap", 1, "opened", "sleep"), record(3, "b", 1)]
    _, turn = replayed(body, *history)
    assert told(turn) == (3, ["step flying 5 after 0", "sleep nap 10 after 1", "step c 5 after 3"], None)
    requests = [json.loads(request.request(turn.after, None)) for request in turn.requests]
    assert [request.get("after") for request in requests] == [0, 1, None]


def test_only_what_no_record_knows_may_start_at_once():
    async def body(ctx: Context, given: Any) -> Any:
        await asyncio.gather(run("retrying"), run("new"), step.run("alone", timeout=5, exclusive=True, fn=print))

    _, turn = replayed(body, record(1, "retrying", 0, "opened"))
    assert {item.id: item.starts_at_once() for item in turn.requests} == {
        "retrying": False,
        "new": True,
        "alone": False,
    }


def test_letting_go_of_an_open_item_is_told_again_and_of_a_settled_one_is_not():
    async def body(ctx: Context, given: Any) -> Any:
        nap, settled, unknown = step.sleep("nap", "10s"), run("settled"), run("unknown")
        await run("a")
        for future in (nap, settled, unknown):
            future.cancel()
        await run("b")

    history = [
        record(1, "nap", 0, "opened", "sleep"),
        record(2, "a", 0),
        record(3, "settled", 0, "cancelled"),
    ]
    _, turn = replayed(body, *history)
    assert told(turn)[1] == ["cancel nap after 2", "step b 5 after 2"]


def test_failures_replay_as_they_were():
    async def body(ctx: Context, given: Any) -> Any:
        try:
            await run("a")
        except StepError as error:
            return [error.code, error.type, error.message, error.step]

    failed = record(1, "a", 0, "failed") | {"error": {"code": "E_X", "type": "T", "message": "m"}}
    _, turn = replayed(body, failed)
    assert turn.ended == {"status": "succeeded", "value": '["E_X","T","m","a"]'}


def test_a_recorded_value_that_this_code_cannot_read_blocks():
    broken = record(1, "a", 0) | {"value": '{"$dataclass":{"type":"nowhere:Gone","fields":{}}}'}
    block = blocked(two, broken)
    assert "nowhere:Gone" in block.message


def test_a_log_line_is_written_once():
    async def body(ctx: Context, given: Any) -> Any:
        ctx.log.info("before %s", "a")
        await run("a")
        ctx.log.warning("after a")
        await run("b")
        ctx.log.info("after b")

    lines: list[dict[str, Any]] = []
    body_run = new_run(body, settings(lines))
    Replay(body_run, [record(1, "a", 0)]).play(10)
    assert lines == []
    body_run.deliver(2, "b", "succeeded", at=at(2), value="1")
    assert [(line["level"], line["text"], line["item"]) for line in lines] == [("info", "after b", None)]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_history_may_be_played_in_slices(size: int):
    async def body(ctx: Context, given: Any) -> Any:
        return [await run(f"s{n}") for n in range(20)]

    body_run = new_run(body)
    replay = Replay(body_run, [record(n + 1, f"s{n}", n) for n in range(15)])
    turns = []
    while not turns or turns[-1] is None:
        turns.append(replay.play(size))
    assert turns[-1] is not None
    assert told(turns[-1]) == (15, ["step s15 5 after 15"], None)
