"""Hosts that die, block, hang, flood and lie: what the executor is told, and when."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from processors.executor.hosts import HostSettings
from tests.integration.hosts.scripted import Scripted, Shelf, Story, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]

STEADY = """
@workflow("t", version=1)
async def body(ctx, input):
    async def who(): return os.getpid()
    pid = await step.run("who", timeout="5s", fn=who)
    await step.run("wait", timeout="60s", fn=lambda: asyncio.sleep(50))
"""
# One bundle, many characters: the input says what a run does.
MANY = """
def sleeps(seconds, mark=None):
    time.sleep(seconds)
    if mark: open(mark, "w").close()
    return "slept"

async def blocks(seconds):
    time.sleep(seconds)
    return "blocked"

@workflow("t", version=1)
async def body(ctx, input):
    what, seconds, timeout = input["what"], input.get("seconds", 0), input.get("timeout", "5s")
    if what == "body-blocks":
        time.sleep(seconds)
    fn = {
        "quick": lambda: "quick",
        "thread": lambda: sleeps(seconds, input.get("mark")),
        "block": lambda: blocks(seconds),
        "async": lambda: asyncio.sleep(seconds, "slept"),
        "exit": lambda: sys.exit(3),
        "die": lambda: os._exit(5),
        "flood": lambda: [print("x" * 100) for _ in range(200_000)] and None,
    }.get(what, lambda: None)
    async def who(): return os.getpid()
    pid = await step.run("who", timeout="5s", fn=who)
    first = await step.run("a", timeout=timeout, fn=fn)
    return {"pid": pid, "first": first}
"""


def start(scripted: Scripted, shelf: Shelf, run_id: str, what: str, **more: object) -> Story:
    auto = bool(more.pop("auto", True))
    if 1 not in shelf.bundles:
        shelf.put(MANY)
    return scripted.start(run_id, 1, given=json.dumps({"what": what, **more}), auto=auto)


def pid_of(story: Story) -> int:
    return int(story.values["who"])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_killed_host_loses_its_runs_and_the_next_one_serves(scripted: Scripted, shelf: Shelf) -> None:
    stories = [scripted.start(f"run_{n}", shelf.put(STEADY)) for n in range(3)]
    await scripted.until(lambda: all("who" in story.values for story in stories))
    os.kill(pid_of(stories[0]), signal.SIGKILL)
    await scripted.until(lambda: all(story.lost for story in stories))
    assert "SIGKILL" in (stories[0].lost or "")
    again = scripted.start("run_0", 1, fence=2, history=stories[0].history)
    await scripted.until(lambda: again.turns)
    assert again.items() == ["wait"]


async def test_a_step_that_ends_its_process_is_lost_with_its_neighbours(scripted: Scripted, shelf: Shelf) -> None:
    neighbour = start(scripted, shelf, "run_1", "async", seconds=50)
    await scripted.until(lambda: "who" in neighbour.values)
    poison = start(scripted, shelf, "run_2", "die")
    await scripted.until(lambda: poison.lost and neighbour.lost)
    assert "exit code 5" in (poison.lost or "")


async def test_results_sent_before_the_death_still_count(scripted: Scripted, shelf: Shelf) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def last(): return 1
    a = step.run("a", timeout="5s", fn=last)
    def dies():
        time.sleep(0.2)
        os._exit(5)
    b = step.run("b", timeout="5s", fn=dies)
    await asyncio.gather(a, b)
""")
    story = scripted.start("run_1", 1, auto=False)
    await scripted.until(lambda: story.lost)
    assert story.values == {"a": "1"}


async def test_an_exit_in_a_step_is_an_error_of_that_step(scripted: Scripted, shelf: Shelf) -> None:
    story = start(scripted, shelf, "run_1", "exit")
    await scripted.until(lambda: story.failures)
    assert story.failures[0][2].type == "SystemExit"
    other = start(scripted, shelf, "run_2", "quick")
    await scripted.until(lambda: other.end)
    assert pid_of(other) == pid_of(story)


async def test_a_coroutine_past_its_timeout_fails_inside(scripted: Scripted, shelf: Shelf) -> None:
    story = start(scripted, shelf, "run_1", "async", seconds=50, timeout="200ms")
    await scripted.until(lambda: story.failures)
    error = story.failures[0][2]
    assert (error.code, error.retryable) == ("E_STEP_TIMEOUT", True)
    other = start(scripted, shelf, "run_2", "quick")
    await scripted.until(lambda: other.end)
    assert pid_of(other) == pid_of(story)


async def test_a_thread_past_its_timeout_holds_its_retry_back_until_it_has_ended(
    scripted: Scripted, shelf: Shelf, with_settings: MakeScripted, tmp_path: object
) -> None:
    patient = with_settings(quick(grace=20.0))
    mark = f"{tmp_path}/ended"
    story = start(patient, shelf, "run_1", "thread", seconds=1.2, timeout="200ms", mark=mark)
    await patient.until(lambda: story.failures)
    assert story.failures[0][2].code == "E_STEP_TIMEOUT"
    assert not os.path.exists(mark)  # noqa: ASYNC240, PTH110 - one question
    patient.run_step("run_1", "a", 2, 30.0)
    await patient.until(lambda: "a" in story.values)
    seen_at = story.history[-1]
    assert seen_at.item == "a"
    assert os.path.exists(mark)  # noqa: ASYNC240, PTH110 - one question
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
    scripted: Scripted, shelf: Shelf
) -> None:
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    busy = start(scripted, shelf, "run_2", "async", seconds=1.5, timeout="3s")
    await scripted.until(lambda: "who" in idle.values and "who" in busy.values)
    late = start(scripted, shelf, "run_3", "thread", seconds=60, timeout="200ms")
    await scripted.until(lambda: late.failures)
    assert late.failures[0][2].code == "E_STEP_TIMEOUT"
    scripted.run_step("run_3", "a", 2, 30.0)  # held back
    await scripted.until(lambda: idle.lost and late.lost)
    assert busy.lost is None
    elsewhere = start(scripted, shelf, "run_4", "quick")
    await scripted.until(lambda: elsewhere.end)
    assert pid_of(elsewhere) != pid_of(late)
    await scripted.until(lambda: busy.lost)
    assert busy.values["a"] == '"slept"'  # it was let finish first
    await until(lambda: is_gone(pid_of(late)), "the host is gone")


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
    assert (error.code, error.retryable, error.line) == ("E_STEP_TIMEOUT", True, "flow.py:10")
    assert "blocks the event loop" in error.message
    await until(lambda: is_gone(pid_of(idle)), "the host is gone")


async def test_a_loop_that_a_step_blocks_within_its_timeout_gives_up_the_neighbours_alone(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(silence=1.5))
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    blocking = start(scripted, shelf, "run_2", "block", seconds=5, timeout="30s")
    await scripted.until(lambda: idle.lost)
    assert "blocks the event loop of its host at flow.py:10" in (idle.lost or "")
    assert blocking.lost is None
    await scripted.until(lambda: "a" in blocking.values)


async def test_a_step_that_blocks_before_its_turn_was_told_is_lost_and_then_timed_out(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(silence=1.5))
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def blocks(): time.sleep(60)
    await step.run("a", timeout="1s", fn=blocks)
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.lost)
    assert story.lost == "step 'a' of run_1 blocks the event loop of its host at flow.py:6"
    again = scripted.start("run_1", 1, fence=2, go=False, alone=True)
    await scripted.until(lambda: again.failures and again.lost)
    assert again.failures[0][2].code == "E_STEP_TIMEOUT"


async def test_a_body_that_blocks_is_suspected_and_its_host_ended(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(silence=1.5))
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    body = start(scripted, shelf, "run_2", "body-blocks", seconds=60)
    await scripted.until(lambda: body.lost and idle.lost)
    assert "the body of run_2 blocks the event loop of its host at flow.py:17" in (body.lost or "")
    await until(lambda: is_gone(pid_of(idle)), "the host is gone")


async def test_a_host_that_gives_no_sign_of_life_is_given_up(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(silence=1.5))
    idle = start(scripted, shelf, "run_1", "quick", auto=False)
    await scripted.until(lambda: "who" in idle.values)
    os.kill(pid_of(idle), signal.SIGSTOP)
    await scripted.until(lambda: idle.lost)
    assert "no sign of life" in (idle.lost or "")
    await until(lambda: is_gone(pid_of(idle)), "the host is gone")


async def test_steps_that_queue_for_a_thread_have_all_of_their_time(scripted: Scripted, shelf: Shelf) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    slow = lambda: time.sleep(0.6)
    return len(await asyncio.gather(*(step.run(f"s{n}", timeout="1s", fn=slow) for n in range(100))))
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert story.end.value == "100"
    assert not story.failures


async def test_a_flood_of_output_is_drained_and_cut(scripted: Scripted, shelf: Shelf) -> None:
    with capture_logs() as logs:
        story = start(scripted, shelf, "run_1", "flood", timeout="30s")
        await scripted.until(lambda: story.end, within=30)
        await scripted.hosts.aclose()
    lines = [line for line in logs if line["event"] == "step_host_output"]
    left_out = sum(line["lines"] for line in logs if line["event"] == "step_host_output_left_out")
    assert 0 < len(lines) < 2_000
    assert lines[0]["text"] == "x" * 100
    assert lines[0]["project"] == "acme"
    assert left_out > 190_000


async def test_what_a_run_logs_carries_its_name(scripted: Scripted, shelf: Shelf) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    ctx.log.info("hello %s", "there")
""")
    with capture_logs() as logs:
        story = scripted.start("run_1", 1)
        await scripted.until(lambda: story.end)
        await until(lambda: any(line.get("run_id") == "run_1" for line in logs), "the line")
    (line,) = [line for line in logs if line.get("run_id") == "run_1"]
    assert line["text"] == "hello there"


async def test_a_bundle_that_ends_its_host_at_import_is_tried_more_and_more_slowly(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(backoff_base=0.4))
    definition = shelf.put("os._exit(9)\n")
    took = []
    for fence in range(1, 4):
        began = time.monotonic()
        story = scripted.start("run_1", definition, fence=fence)
        await scripted.until(lambda story=story: story.lost)
        assert "exit code 9" in (story.lost or "")
        took.append(time.monotonic() - began)
    assert took[1] > 0.4
    assert took[2] > 0.8


async def test_an_import_that_does_not_end_is_refused(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(load_within=0.7))
    story = scripted.start("run_1", shelf.put("time.sleep(60)\n"))
    await scripted.until(lambda: story.diverged)
    assert story.diverged is not None
    assert story.diverged.code == "E_BUNDLE_IMPORT"
    assert "did not end within 0.7 s" in story.diverged.message


async def test_an_interpreter_that_is_not_there_loses_the_runs(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(interpreter="/nowhere/python", drop_root=False, spare=False))
    story = scripted.start("run_1", shelf.put(STEADY))
    await scripted.until(lambda: story.lost)
    assert "cannot be started" in (story.lost or "")


@pytest.mark.parametrize(
    "payload",
    [
        b"not json",
        b'[{"t":"SING"}]',
        b'[{"t":"TURN","run":7}]',
        b'[{"t":"DONE","run":"run_1","fence":1,"item":"who","attempt":1,"token":"h1","value":7}]',
    ],
)
async def test_code_that_writes_into_the_frames_costs_its_host_alone(
    scripted: Scripted, shelf: Shelf, payload: bytes
) -> None:
    shelf.put(f"""
@workflow("t", version=1)
async def body(ctx, input):
    payload = {payload!r}
    async def lies():
        os.write(3, len(payload).to_bytes(4, "big") + payload)
        await asyncio.sleep(50)
    await step.run("a", timeout="60s", fn=lies)
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.lost)
    assert "broke the frame format" in (story.lost or "")


async def test_a_result_that_is_no_json_fails_its_attempt(scripted: Scripted, shelf: Shelf) -> None:
    shelf.put(r"""
import json
@workflow("t", version=1)
async def body(ctx, input):
    async def lies():
        await asyncio.sleep(0.05)
        told = {"t": "DONE", "run": ctx.run_id, "fence": 1, "item": "a", "attempt": 1, "token": "h1"}
        told["value"] = '"\\u0000"'
        data = json.dumps([told]).encode()
        os.write(3, len(data).to_bytes(4, "big") + data)
        await asyncio.sleep(50)
    await step.run("a", timeout="60s", fn=lies)
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.failures)
    assert (story.failures[0][2].code, story.failures[0][2].retryable) == ("E_RESULT_NOT_JSON", False)


async def test_a_grandchild_does_not_outlive_its_host(scripted: Scripted, shelf: Shelf) -> None:
    shelf.put("""
import subprocess
@workflow("t", version=1)
async def body(ctx, input):
    def spawns(): return subprocess.Popen(["sleep", "300"]).pid
    await step.run("child", timeout="5s", fn=spawns)
    def forks():
        pid = os.fork()
        if pid == 0:
            time.sleep(300)
        return pid
    await step.run("fork", timeout="5s", fn=forks)
    await step.run("who", timeout="5s", fn=lambda: os.getpid())
    await step.run("end", timeout="5s", fn=lambda: os._exit(0))
""")
    story = scripted.start("run_1", 1)
    began = time.monotonic()
    await scripted.until(lambda: story.lost)
    assert time.monotonic() - began < 5
    for item in ("child", "fork"):
        await until(lambda item=item: _is_dead(int(story.values[item])), f"{item} is gone")


def _is_dead(pid: int) -> bool:
    """Gone, or a zombie that nobody reaps here."""
    with suppress(FileNotFoundError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123 - a kernel file
        return stat.read().rpartition(")")[2].split()[0] in {"Z", "X"}
    return True


async def test_a_loop_of_ours_that_was_held_up_blames_no_host(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(silence=1.2))
    story = start(scripted, shelf, "run_1", "async", seconds=1, timeout="2s")
    await scripted.until(lambda: "who" in story.values)
    time.sleep(3)  # noqa: ASYNC251 - this is what is tested
    await asyncio.sleep(0)
    await scripted.until(lambda: story.end)
    assert not story.failures
    assert story.lost is None
