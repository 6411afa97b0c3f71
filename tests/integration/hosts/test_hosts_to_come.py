"""Bundles that cannot be had now and hosts that do not come up: no run is at fault, and each can be ended meanwhile."""

import asyncio
import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from processors.engine.requests import BodyStatus
from processors.executor.hosts import HostSettings
from processors.executor.hosts.account import Account
from processors.executor.hosts.output import Output
from processors.executor.hosts.process import HostProcess, Plan
from processors.runtime import patience
from schemas.errors import Refused, Unavailable
from tests.integration.hosts.characters import STEADY
from tests.integration.hosts.scripted import Scripted, Shelf, Story, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]

DONE = """
@workflow("t", version=1)
async def body(ctx, input):
    return "done"
"""
LOSSES_THAT_END_A_RUN = 5


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE", 0.02)


def _is_untold(story: Story) -> bool:
    return (story.lost, story.diverged, story.end) == (None, None, None)


def _has_ended(story: Story) -> bool:
    return story.end is not None


def _are_lost(stories: Sequence[Story]) -> bool:
    return all(story.lost for story in stories)


# -- bundles ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("trouble", [Unavailable("E_UNAVAILABLE", "away"), OSError(28, "No space left"), KeyError("x")])
async def test_runs_wait_for_a_bundle_that_cannot_be_fetched_now(
    scripted: Scripted, shelf: Shelf, trouble: Exception
) -> None:
    shelf.bundles[1] = trouble
    with capture_logs() as logs:
        stories = [scripted.start(f"run_{n}", 1) for n in range(3)]
        await until(lambda: shelf.fetched > LOSSES_THAT_END_A_RUN, "more tries than losses that end a run")
        assert all(map(_is_untold, stories))
        shelf.put(DONE)
        await scripted.until(lambda: all(story.end for story in stories))
    told = [line["error"] for line in logs if line["event"] == "bundle_not_fetched"]
    assert told == [f"{type(trouble).__name__}: {trouble}"]
    assert all(story.lost is None for story in stories)


@pytest.mark.usefixtures("short_pauses")
async def test_each_reason_is_logged_when_it_is_another_one(scripted: Scripted, shelf: Shelf) -> None:
    with capture_logs() as logs:
        shelf.bundles[1] = OSError("the disk is full")
        story = scripted.start("run_1", 1)
        await until(lambda: shelf.fetched > 2, "a few tries")
        shelf.bundles[1] = Unavailable("E_UNAVAILABLE", "Postgres is away")
        fetched = shelf.fetched
        await until(lambda: shelf.fetched > fetched + 2, "a few more")
        shelf.bundles[1] = Refused("E_BUNDLE_INVALID", "not stored")
        await scripted.until(lambda: story.diverged)
    told = [line["error"] for line in logs if line["event"] == "bundle_not_fetched"]
    assert told == ["OSError: the disk is full", "Unavailable: Postgres is away [E_UNAVAILABLE]"]


@pytest.mark.usefixtures("short_pauses")
async def test_runs_wait_while_a_bundle_cannot_be_unpacked(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scripted = with_settings(quick(drop_root=False))
    definition = shelf.put(DONE, digest="sha256:d")
    first = scripted.start("run_1", shelf.put(DONE, definition=2))
    await scripted.until(lambda: first.end)
    (folder,) = tmp_path.glob("a44-hosts-*")  # noqa: ASYNC240 - one question
    in_the_way = folder / f"bundle-{hashlib.sha256(b'sha256:d').hexdigest()[:32]}"
    in_the_way.touch()
    story, fetched = scripted.start("run_2", definition), shelf.fetched
    await until(lambda: shelf.fetched > fetched + LOSSES_THAT_END_A_RUN, "more tries than losses that end a run")
    assert _is_untold(story)
    in_the_way.unlink()
    await scripted.until(lambda: story.end)


@pytest.mark.usefixtures("short_pauses")
async def test_an_executor_without_a_place_for_its_files_goes_on_when_there_is_one(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "to come"
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    scripted = with_settings(quick(drop_root=False, backoff_base=0.05, backoff_cap=0.2))
    scripted.hosts.warm()
    story = scripted.start("run_1", shelf.put(DONE))
    await until(lambda: shelf.fetched > LOSSES_THAT_END_A_RUN, "more tries than losses that end a run")
    assert _is_untold(story)
    place.mkdir()
    await scripted.until(lambda: story.end)
    assert story.lost is None


@pytest.mark.usefixtures("short_pauses")
async def test_nobody_asks_for_a_bundle_that_no_run_waits_for(scripted: Scripted, shelf: Shelf) -> None:
    shelf.bundles[1] = Unavailable("E_UNAVAILABLE", "away")
    stories = [scripted.start(f"run_{n}", 1) for n in range(2)]
    await until(lambda: shelf.fetched > 2, "a few tries")
    scripted.hosts.drop("run_0", 1)
    fetched = shelf.fetched
    await until(lambda: shelf.fetched > fetched + 1, "another try, for the one that is left")
    scripted.hosts.drop("run_1", 1)
    asked = {task for task in asyncio.all_tasks() if "_fetch" in repr(task.get_coro())}
    await until(lambda: all(task.done() for task in asked), "the end of the tries")
    shelf.put(DONE)
    again = scripted.start("run_2", 1)
    await scripted.until(lambda: again.end)
    assert all(map(_is_untold, stories))


async def test_a_run_that_waits_for_its_bundle_can_be_cancelled(scripted: Scripted, shelf: Shelf) -> None:
    shelf.bundles[1] = Unavailable("E_UNAVAILABLE", "away")
    story, dropped = scripted.start("run_1", 1), scripted.start("run_2", 1)
    await until(lambda: shelf.fetched > 0, "a try")
    for run_id in ("run_1", "run_2"):
        scripted.hosts.close_run(run_id, 1, "cancelled by ana")
    scripted.hosts.drop("run_2", 1)
    await scripted.until(lambda: story.end)
    assert story.turns == [(0, [])]
    assert story.end is not None
    assert story.end.error is not None
    assert (story.end.status, story.end.error.message) == (BodyStatus.CANCELLED, "cancelled by ana")
    shelf.put(DONE)
    other = scripted.start("run_3", 1)
    await scripted.until(lambda: other.end)
    assert (len(story.turns), dropped.turns) == (1, [])


async def test_a_stop_does_not_wait_for_a_bundle(
    with_settings: MakeScripted, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 600.0)
    scripted = with_settings(quick())
    shelf.bundles[1] = Unavailable("E_UNAVAILABLE", "away")
    with capture_logs() as logs:
        story = scripted.start("run_1", 1)
        await until(lambda: any(line["event"] == "bundle_not_fetched" for line in logs), "the pause")
        async with asyncio.timeout(10):
            await scripted.hosts.aclose()
    assert _is_untold(story)


# -- hosts --------------------------------------------------------------------------------------------


def _interpreter(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("does", [None, "exec sleep 600", "exit 9", "kill -9 $$"])
async def test_a_host_that_does_not_come_up_suspects_nobody_and_the_next_one_waits(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path, does: str | None
) -> None:
    interpreter = tmp_path / "python"
    if does is not None:
        _interpreter(interpreter, does)
    scripted = with_settings(
        quick(interpreter=str(interpreter), drop_root=False, spare=False, hello_within=1.0, backoff_base=0.2)
    )
    definition, took = shelf.put(DONE), []
    for fence in range(1, 4):
        began = time.monotonic()
        stories = [scripted.start(f"run_{n}", definition, fence=fence) for n in range(2)]
        await scripted.until(partial(_are_lost, stories))
        assert [story.suspected for story in stories] == [False, False]
        took.append(time.monotonic() - began)
    assert took[1] > 0.2
    assert took[2] > 0.4
    interpreter.unlink(missing_ok=True)
    _interpreter(interpreter, f'exec {sys.executable} "$@"')
    # On a crowded machine a real host may say hello too late as well: its run is then given again.
    for fence in range(4, 10):
        story = scripted.start("run_0", definition, fence=fence)
        await scripted.until(lambda: story.end or story.lost)  # noqa: B023 - asked before the next one
        if story.end:
            break
    assert story.end


async def test_a_host_that_dies_while_it_imports_suspects_its_runs(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put("os._exit(9)\n"))
    await scripted.until(lambda: story.lost)
    assert story.suspected


async def test_a_run_whose_host_is_to_come_can_be_cancelled(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path
) -> None:
    _interpreter(tmp_path / "python", "exec sleep 600")
    scripted = with_settings(quick(interpreter=str(tmp_path / "python"), drop_root=False, hello_within=600.0))
    for number, losses in enumerate((0, 1, 2)):
        story = scripted.start(f"run_{number}", shelf.put(STEADY), losses=losses)
        await until(lambda: shelf.fetched > 0, "the bundle")
        scripted.hosts.close_run(f"run_{number}", 1, "cancelled by ana")
        await scripted.until(partial(_has_ended, story))
        assert story.end is not None
        assert (story.end.status, story.lost) == (BodyStatus.CANCELLED, None)
    async with asyncio.timeout(20):
        await scripted.hosts.aclose()


async def test_a_process_that_is_gone_before_anybody_reads_from_it_leaves_nothing_to_read(tmp_path: Path) -> None:
    _interpreter(tmp_path / "python", "exit 9")
    home = tmp_path / "home"
    home.mkdir()
    process = HostProcess.spawn(Plan(str(tmp_path / "python"), Account(), home, {}), Output(50, 2_000))
    codes: list[int] = []
    process.watch(codes.append)
    await until(lambda: bool(codes), "its end")
    await process.drain()
    assert codes == [9]
