"""Attempts that nobody could stop: what they came to is told, once, whoever has let go of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processors.executor.hosts import HostSettings
from tests.integration.hosts.characters import is_gone, pid_of, start
from tests.integration.hosts.scripted import Scripted, Shelf, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]

STUBBORN = """
@workflow("t", version=1)
async def body(ctx, input):
    async def stubborn():
        open(input["began"], "w").close()
        try:
            await asyncio.sleep(50)
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)
        return {"amount": 7, "password": "hunter2"}
    await step.run("a", timeout="20s", fn=stubborn)
"""

AT_ONCE = """
@workflow("t", version=1)
async def body(ctx, input):
    async def quick(): return "quick"
    await step.run("a", timeout="20s", fn=quick)
"""

GIVES_UP = """
@workflow("t", version=1)
async def body(ctx, input):
    def slow():
        time.sleep(3)
        return "paid"
    try:
        await asyncio.wait_for(step.run("a", timeout="20s", fn=slow), 5)
    except TimeoutError:
        return await step.run("b", timeout="5s", fn=lambda: "went on")
"""


@pytest.fixture
def began(tmp_path: Path) -> Path:
    """The file that a thread's function makes first: one that waits for its thread is stopped and owes nothing."""
    return tmp_path / "began"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The file that a thread's function waits for."""
    return tmp_path / "release"


def let_go(release: Path) -> None:
    release.touch()


async def flying(scripted: Scripted, shelf: Shelf, run_id: str, what: str, began: Path, **more: object) -> int:
    """A run with an attempt of step `a` in flight, begun if it is a thread's; the pid of its host."""
    story = start(scripted, shelf, run_id, what, began=str(began), **more)
    await scripted.until(lambda: "a" in story.items())
    if what == "thread":
        await until(began.exists, "the thread has begun")
    return pid_of(story)


async def started(scripted: Scripted, began: Path) -> None:
    """Run `run_1` of definition 1, whose function says itself that it has begun."""
    scripted.start("run_1", 1, given=json.dumps({"began": str(began)}))
    await until(began.exists, "the function has begun")


async def test_a_thread_of_a_dropped_run_tells_late_what_it_came_to(
    scripted: Scripted, shelf: Shelf, began: Path, release: Path
) -> None:
    await flying(scripted, shelf, "run_1", "thread", began, release=str(release))
    scripted.hosts.drop("run_1", 1)
    let_go(release)
    await scripted.until(lambda: scripted.lates)
    assert scripted.lates == [("run_1", 1, "a", 1, "succeeded", '"slept"', None)]
    assert "a" not in scripted.stories["run_1"].values


async def test_a_coroutine_that_swallows_its_cancellation_tells_late_and_redacted(
    scripted: Scripted, shelf: Shelf, began: Path
) -> None:
    shelf.put(STUBBORN)
    await started(scripted, began)
    scripted.hosts.drop("run_1", 1)
    await scripted.until(lambda: scripted.lates)
    assert scripted.lates[0][4:6] == ("succeeded", '{"amount":7,"password":"[redacted]"}')


async def test_a_late_failure_is_told_with_its_error(scripted: Scripted, shelf: Shelf, began: Path) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    def fails():
        open(input["began"], "w").close()
        time.sleep(2)
        raise ValueError("no such tenant")
    await step.run("a", timeout="20s", fn=fails)
""")
    await started(scripted, began)
    scripted.hosts.drop("run_1", 1)
    await scripted.until(lambda: scripted.lates)
    *_, status, value, error = scripted.lates[0]
    assert (status, value, error and error.type) == ("failed", None, "ValueError")


async def test_an_attempt_that_was_stopped_has_nothing_to_tell(
    scripted: Scripted, shelf: Shelf, began: Path, release: Path
) -> None:
    await flying(scripted, shelf, "run_1", "async", began, seconds=50)
    await flying(scripted, shelf, "run_2", "thread", began, release=str(release))
    scripted.hosts.drop("run_1", 1)
    scripted.hosts.drop("run_2", 1)
    let_go(release)
    await scripted.until(lambda: scripted.lates)
    assert [late[0] for late in scripted.lates] == ["run_2"]


async def test_a_result_that_was_on_its_way_when_the_run_was_dropped_is_late(scripted: Scripted, shelf: Shelf) -> None:
    told = scripted.turned

    def drops(run_id: str, fence: int, *turn: Any) -> None:
        told(run_id, fence, *turn)
        scripted.hosts.drop(run_id, fence)  # the outcome shares the frame of the turn

    scripted.turned = drops  # type: ignore[method-assign, assignment]  # the executor's loss at this very moment
    scripted.start("run_1", shelf.put(AT_ONCE))
    await scripted.until(lambda: scripted.lates)
    assert scripted.lates == [("run_1", 1, "a", 1, "succeeded", '"quick"', None)]
    assert scripted.stories["run_1"].values == {}


async def test_an_earlier_life_in_the_same_host_tells_late_and_holds_the_next_one_back(
    scripted: Scripted, shelf: Shelf, began: Path, release: Path
) -> None:
    await flying(scripted, shelf, "run_1", "thread", began, release=str(release))
    story = scripted.stories["run_1"]
    again = scripted.start("run_1", 1, fence=2, given=story.start.input, history=story.history, go=False, auto=False)
    await scripted.until(lambda: again.turns)
    scripted.run_step("run_1", "a", 2, 20.0)
    let_go(release)
    await scripted.until(lambda: "a" in again.values)
    assert scripted.lates == [("run_1", 1, "a", 1, "succeeded", '"slept"', None)]


async def test_a_host_stays_for_what_it_owes_and_goes_when_that_has_come(
    scripted: Scripted, shelf: Shelf, began: Path, release: Path
) -> None:
    pid = await flying(scripted, shelf, "run_1", "thread", began, release=str(release), losses=1)
    scripted.hosts.drop("run_1", 1)
    let_go(release)
    await scripted.until(lambda: scripted.lates)
    await until(lambda: is_gone(pid), "a host for suspects ends when it is empty")


async def test_code_of_a_dropped_run_that_passes_its_timeout_ends_with_its_host(
    scripted: Scripted, shelf: Shelf, began: Path
) -> None:
    pid = await flying(scripted, shelf, "run_1", "thread", began, seconds=60, timeout="1s")
    scripted.hosts.drop("run_1", 1)
    await until(lambda: is_gone(pid), "the host is gone")
    assert scripted.lates == []


async def test_a_host_that_was_withdrawn_before_waits_no_longer_for_what_it_owes(
    with_settings: MakeScripted, shelf: Shelf, began: Path
) -> None:
    """A loop that a step blocks within its timeout: the host is to end when it is empty."""
    scripted = with_settings(quick(silence=3.0))
    pid = await flying(scripted, shelf, "run_1", "thread", began, seconds=60, timeout="9s")
    await flying(scripted, shelf, "run_2", "block", began, seconds=7, timeout="30s")
    idle = start(scripted, shelf, "run_3", "quick", auto=False)
    await scripted.until(lambda: idle.lost)
    scripted.hosts.drop("run_1", 1)
    await scripted.until(lambda: scripted.stories["run_2"].lost)
    await until(lambda: is_gone(pid), "the host is gone")
    assert scripted.lates == []


async def test_a_late_result_that_is_no_json_is_a_failure(scripted: Scripted, shelf: Shelf, began: Path) -> None:
    shelf.put(r"""
import json
@workflow("t", version=1)
async def body(ctx, input):
    def lies():
        open(input["began"], "w").close()
        time.sleep(2)
        told = {"t": "DONE", "run": ctx.run_id, "fence": 1, "item": "a", "attempt": 1, "token": "h1"}
        told["value"] = '"\\u0000"'
        data = json.dumps([told]).encode()
        os.write(3, len(data).to_bytes(4, "big") + data)
        time.sleep(50)
    await step.run("a", timeout="60s", fn=lies)
""")
    await started(scripted, began)
    scripted.hosts.drop("run_1", 1)
    await scripted.until(lambda: scripted.lates)
    *_, status, value, error = scripted.lates[0]
    assert (status, value, error and error.code) == ("failed", None, "E_RESULT_NOT_JSON")


async def test_nothing_is_told_late_once_the_hosts_are_closed(
    with_settings: MakeScripted, shelf: Shelf, began: Path
) -> None:
    scripted = with_settings(quick(stop_within=5.0))
    pid = await flying(scripted, shelf, "run_1", "thread", began, seconds=2)
    scripted.hosts.drop("run_1", 1)
    await scripted.hosts.aclose()
    assert is_gone(pid)
    assert scripted.lates == []


async def test_an_abandoned_thread_is_in_flight_until_it_ends_and_its_success_counts(
    scripted: Scripted, shelf: Shelf
) -> None:
    story = scripted.start("run_1", shelf.put(GIVES_UP))  # its timer fires at once
    await scripted.until(lambda: story.gave_up)
    scripted.hosts.cancel_step("run_1", 1, "a")
    await scripted.until(lambda: "b" in story.values and "a" in story.values)
    assert story.failures == []
    assert (list(story.values), story.values["a"]) == (["b", "a"], '"paid"')
