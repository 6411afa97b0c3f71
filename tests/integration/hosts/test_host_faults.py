"""Hosts that die, flood and lie, and bundles that cannot be imported: what the executor is told."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from processors.executor.hosts import HostSettings
from tests.integration.hosts.characters import STEADY, pid_of, start
from tests.integration.hosts.scripted import Scripted, Shelf, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]


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


async def test_results_sent_before_the_death_still_count(scripted: Scripted, shelf: Shelf, tmp_path: Path) -> None:
    shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def last(): return 1
    a = step.run("a", timeout="5s", fn=last)
    def dies():
        while not os.path.exists(input): time.sleep(0.01)
        os._exit(5)
    b = step.run("b", timeout="5s", fn=dies)
    await asyncio.gather(a, b)
""")
    told = tmp_path / "told"
    story = scripted.start("run_1", 1, given=json.dumps(str(told)), auto=False)
    await scripted.until(lambda: "a" in story.values)
    told.touch()
    await scripted.until(lambda: story.lost)
    assert story.values == {"a": "1"}


async def test_an_exit_in_a_step_is_an_error_of_that_step(scripted: Scripted, shelf: Shelf) -> None:
    story = start(scripted, shelf, "run_1", "exit")
    await scripted.until(lambda: story.failures)
    assert story.failures[0][2].type == "SystemExit"
    other = start(scripted, shelf, "run_2", "quick")
    await scripted.until(lambda: other.end)
    assert pid_of(other) == pid_of(story)


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


async def test_an_interpreter_without_the_sdk_says_so(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path
) -> None:
    (tmp_path / "anthares44").mkdir()
    (tmp_path / "anthares44" / "__init__.py").touch()  # hides the namespace package
    environment = {"PYTHONPATH": str(tmp_path)}
    scripted = with_settings(quick(extra_environment=environment, drop_root=False, spare=False))
    story = scripted.start("run_1", shelf.put(STEADY))
    await scripted.until(lambda: story.lost)
    assert "No module named 'anthares44.automation'" in (story.lost or "")


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
    await scripted.until(lambda: "who" in story.values)
    began = time.monotonic()
    await scripted.until(lambda: story.lost)  # its children would have lived for minutes
    assert time.monotonic() - began < 5
    for item in ("child", "fork"):
        await until(lambda item=item: _is_dead(int(story.values[item])), f"{item} is gone")


def _is_dead(pid: int) -> bool:
    """Gone, or a zombie that nobody reaps here."""
    with suppress(FileNotFoundError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123 - a kernel file
        return stat.read().rpartition(")")[2].split()[0] in {"Z", "X"}
    return True
