"""Attempts past their timeout, loops that are blocked, hosts that are silent: what it costs, and whom."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from processors.executor.hosts import HostSettings
from tests.integration.hosts.characters import is_gone, pid_of, start
from tests.integration.hosts.scripted import Scripted, Shelf, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]


async def test_a_coroutine_past_its_timeout_fails_inside(scripted: Scripted, shelf: Shelf) -> None:
    story = start(scripted, shelf, "run_1", "async", seconds=50, timeout="200ms")
    await scripted.until(lambda: story.failures)
    error = story.failures[0][2]
    assert (error.code, error.retryable) == ("E_STEP_TIMEOUT", True)
    other = start(scripted, shelf, "run_2", "quick")
    await scripted.until(lambda: other.end)
    assert pid_of(other) == pid_of(story)


async def test_a_thread_past_its_timeout_holds_its_retry_back_until_it_has_ended(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path
) -> None:
    patient = with_settings(quick(grace=20.0, silence=20.0))
    mark, release = tmp_path / "ended", tmp_path / "release"
    story = start(patient, shelf, "run_1", "thread", timeout="200ms", mark=str(mark), release=str(release))
    await patient.until(lambda: story.failures)
    assert story.failures[0][2].code == "E_STEP_TIMEOUT"
    assert not mark.exists()
    patient.run_step("run_1", "a", 2, 30.0)
    release.touch()
    await patient.until(lambda: "a" in story.values)
    seen_at = story.history[-1]
    assert seen_at.item == "a"
    assert mark.exists()
    assert story.lost is None


async def test_a_retry_that_is_held_back_can_be_cancelled(with_settings: MakeScripted, shelf: Shelf) -> None:
    patient = with_settings(quick(grace=20.0))
    story = start(patient, shelf, "run_1", "thread", seconds=30, timeout="200ms")
    await patient.until(lambda: story.failures)
    patient.run_step("run_1", "a", 2, 30.0)
    patient.hosts.cancel_step("run_1", 1, "a")
    await patient.until(lambda: len(story.failures) == 2)
    item, attempt, error = story.failures[1]
    assert (item, attempt, error.code) == ("a", 2, "E_CANCELLED")


async def test_a_thread_that_runs_on_costs_its_host_and_the_neighbours_go_on_elsewhere(
    scripted: Scripted, shelf: Shelf, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    busy = start(scripted, shelf, "run_2", "async", timeout="60s", release=str(release))
    await scripted.until(lambda: "who" in idle.values and "a" in busy.items())
    late = start(scripted, shelf, "run_3", "thread", seconds=60, timeout="200ms")
    await scripted.until(lambda: late.failures)
    assert late.failures[0][2].code == "E_STEP_TIMEOUT"
    scripted.run_step("run_3", "a", 2, 30.0)  # held back
    await scripted.until(lambda: idle.lost and late.lost)
    assert (late.suspected, idle.suspected) == (True, False)
    assert late.unbegun == ["a"]  # it was never in flight
    assert busy.lost is None
    elsewhere = start(scripted, shelf, "run_4", "quick")
    await scripted.until(lambda: elsewhere.end)
    assert pid_of(elsewhere) != pid_of(late)
    assert busy.lost is None
    release.touch()
    await scripted.until(lambda: busy.lost)
    assert busy.values["a"] == '"slept"'  # it was let finish first
    assert busy.suspected is False
    await until(lambda: is_gone(pid_of(late)), "the host is gone")


async def test_nothing_new_starts_in_a_host_that_is_about_to_go(
    scripted: Scripted, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def released(name):
        while not os.path.exists(f"{input['folder']}/{name}"): await asyncio.sleep(0.01)
    async def two(name):
        await step.run(name, timeout="60s", fn=lambda: released(name))
        return await step.run(f"{name}-then", timeout="60s", fn=lambda: None)
    if "late" in input:
        await step.run("late", timeout="500ms", fn=lambda: time.sleep(60))
    await asyncio.gather(two("a"), two("b"))
""")
    busy = scripted.start("run_1", 1, given=json.dumps({"folder": str(tmp_path)}))
    await scripted.until(lambda: len(busy.items()) == 2)
    late = scripted.start("run_2", 1, given='{"late": true}')
    await scripted.until(lambda: late.failures and late.lost)
    (tmp_path / "a").touch()
    await scripted.until(lambda: "a-then" in busy.items())
    (tmp_path / "b").touch()
    await scripted.until(lambda: busy.lost)
    assert list(busy.values) == ["a", "b"]  # what was running came to its end
    assert busy.items() == ["a", "b", "a-then"]
    assert (busy.unbegun, busy.suspected) == (["a-then"], False)


async def test_a_coroutine_that_swallows_its_cancellation_is_timed_out_from_outside(
    scripted: Scripted, shelf: Shelf
) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    async def who(): return os.getpid()
    await step.run("who", timeout="5s", fn=who)
    await step.run("a", timeout="300ms", fn=stubborn)
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.failures and story.lost)
    error = story.failures[0][2]
    assert (error.code, error.retryable) == ("E_STEP_TIMEOUT", True)
    assert "could not be stopped" in error.message
    assert story.told == ["failed", "lost"]
    await until(lambda: is_gone(pid_of(story)), "the host is gone")


async def test_a_host_is_killed_when_the_longest_wait_is_over_whatever_still_runs(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(longest_kill_delay=1.0))
    busy = start(scripted, shelf, "run_1", "async", seconds=60, timeout="90s")
    await scripted.until(lambda: "who" in busy.values)
    late = start(scripted, shelf, "run_2", "thread", seconds=60, timeout="200ms")
    await scripted.until(lambda: late.failures and busy.lost)
    assert "did not end its last attempts in time" in (busy.lost or "")
    assert busy.suspected is False
    assert scripted.measures.value("host_deaths_total", "timeout") == 1


async def test_the_next_life_of_a_run_waits_for_its_thread_to_be_gone(scripted: Scripted, shelf: Shelf) -> None:
    busy = start(scripted, shelf, "run_2", "async", seconds=2, timeout="3s")
    late = start(scripted, shelf, "run_1", "thread", seconds=60, timeout="200ms")
    await scripted.until(lambda: late.lost and "who" in busy.values)
    again = scripted.start("run_1", 1, fence=2, given=late.start.input, history=late.history, auto=False, go=False)
    await scripted.until(lambda: again.turns)
    assert again.items() == ["a"]
    scripted.run_step("run_1", "a", 2, 0.2)
    await scripted.until(lambda: again.failures)
    assert is_gone(pid_of(late))


async def test_a_blocked_loop_fails_the_step_at_its_timeout_and_names_the_line(
    scripted: Scripted, shelf: Shelf
) -> None:
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    blocking = start(scripted, shelf, "run_2", "block", seconds=60, timeout="2500ms")
    await scripted.until(lambda: blocking.failures and blocking.lost and idle.lost)
    error = blocking.failures[0][2]
    assert (error.code, error.retryable, error.line) == ("E_STEP_TIMEOUT", True, "flow.py:11")
    assert "blocks the event loop" in error.message
    assert blocking.told == ["failed", "lost"]  # the other way round the failure would count for nothing
    await until(lambda: is_gone(pid_of(idle)), "the host is gone")


async def test_a_loop_that_a_step_blocks_within_its_timeout_gives_up_the_neighbours_alone(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(silence=3.0))
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    blocking = start(scripted, shelf, "run_2", "block", seconds=8, timeout="30s")
    await scripted.until(lambda: idle.lost)
    assert "blocks the event loop of its host at flow.py:11" in (idle.lost or "")
    assert (blocking.lost, idle.suspected) == (None, False)
    await scripted.until(lambda: "a" in blocking.values)


async def test_a_step_that_blocks_before_its_turn_was_told_is_lost_and_then_timed_out(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(silence=3.0))
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def blocks(): time.sleep(60)
    await step.run("a", timeout="1s", fn=blocks)
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.lost)
    assert story.lost == "step 'a' of run_1 blocks the event loop of its host at flow.py:6"
    again = scripted.start("run_1", 1, fence=2, go=False, losses=2)
    await scripted.until(lambda: again.failures and again.lost)
    assert again.failures[0][2].code == "E_STEP_TIMEOUT"


async def test_a_body_that_blocks_is_suspected_and_its_host_ended(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(silence=3.0))
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    body = start(scripted, shelf, "run_2", "body-blocks", seconds=60)
    await scripted.until(lambda: body.lost and idle.lost)
    assert "the body of run_2 blocks the event loop of its host at flow.py:19" in (body.lost or "")
    assert (body.suspected, idle.suspected) == (True, False)
    await until(lambda: is_gone(pid_of(idle)), "the host is gone")


async def test_a_host_that_gives_no_sign_of_life_is_given_up(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(silence=3.0))
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    os.kill(pid_of(idle), signal.SIGSTOP)
    await scripted.until(lambda: idle.lost)
    assert "no sign of life" in (idle.lost or "")
    assert idle.suspected  # nobody knows whose doing it was
    await until(lambda: is_gone(pid_of(idle)), "the host is gone")


async def test_steps_that_queue_for_a_thread_have_all_of_their_time(scripted: Scripted, shelf: Shelf) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    slow = lambda: time.sleep(1.2)
    return len(await asyncio.gather(*(step.run(f"s{n}", timeout="4s", fn=slow) for n in range(100))))
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert story.end.value == "100"
    assert not story.failures


async def test_a_loop_of_ours_that_was_held_up_blames_no_host(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(silence=2.5))
    story = start(scripted, shelf, "run_1", "async", seconds=1, timeout="4s")
    await scripted.until(lambda: "who" in story.values)
    time.sleep(5)  # noqa: ASYNC251 - this is what is tested
    await asyncio.sleep(0)
    await scripted.until(lambda: story.end)
    assert not story.failures
    assert story.lost is None
