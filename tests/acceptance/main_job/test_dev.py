"""`a44 dev`: files are published as they are saved, a broken one changes nothing, and a kept folder keeps the runs."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from ops.client import Client
from tests.support.waiting import until

FLOW = """
name: hello
version: 3
steps:
  - id: pause
    uses: sleep
    duration: {duration}
"""


class Session:
    """A running `a44 dev` and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said += line.decode()

    async def hears(self, text: str, seconds: float = 40) -> None:
        try:
            await until(lambda: text in self.said, f"a44 dev says {text!r}", seconds)
        except AssertionError:
            raise AssertionError(f"a44 dev never said {text!r} but:\n{self.said}") from None

    def client(self) -> Client:
        found = re.search(r"A44_URL=(\S+) A44_PROJECT=\S+ A44_TOKEN=(\S+)", self.said)
        assert found is not None
        return Client(found[1], found[2])


@asynccontextmanager
async def dev(folder: Path, *words: str) -> AsyncIterator[Session]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ops.cli", "dev", *words, "flows",
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    session = Session(process)
    listening = asyncio.create_task(session.listen())
    try:
        yield session
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0, session.said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening
    assert session.said.rstrip().endswith("stopped")


@pytest.fixture
def folder(passable: Path) -> Path:
    """A folder with one workflow in it."""
    (passable / "flows").mkdir()
    (passable / "flows" / "hello.yaml").write_text(FLOW.format(duration="20ms"))
    return passable


@pytest.mark.timeout(150)
async def test_saving_publishes_and_a_broken_file_keeps_the_last_good_one(folder: Path) -> None:
    flow = folder / "flows" / "hello.yaml"
    async with dev(folder) as session:
        await session.hears("wf_hello 3-dev.1")
        flow.write_text(FLOW.format(duration="30ms"))
        await session.hears("wf_hello 3-dev.2")
        flow.write_text(FLOW.format(duration="30ms") + "  - id: next\n    uses: [\n")
        await session.hears("not published; the last good version stays in force")
        assert re.search(r"flows/hello\.yaml:\d+:\d+: ", session.said)
        with closing(session.client()) as client:
            answer = await asyncio.to_thread(client.run, "wf_hello", "{}", "k1", wait=30)
            assert (answer.document["version"], answer.document["state"]) == ("3-dev.2", "succeeded")


@pytest.mark.timeout(150)
async def test_a_kept_folder_keeps_token_and_runs(folder: Path) -> None:
    async with dev(folder, "--persist", "kept") as session:
        await session.hears("wf_hello 3-dev.1")
        with closing(session.client()) as client:
            answer = await asyncio.to_thread(client.run, "wf_hello", "{}", "k1", wait=30)
            run_id, token = answer.document["run_id"], session.said.split("A44_TOKEN=")[1].split()[0]
    async with dev(folder, "--persist", "kept") as session:
        await session.hears("Ctrl-C stops everything")
        assert token in session.said
        with closing(session.client()) as client:
            known = await asyncio.to_thread(client.show, run_id)
            assert known.document["state"] == "succeeded"
            again = await asyncio.to_thread(client.run, "wf_hello", "{}", "k1")
            assert (again.status, again.document["run_id"]) == (200, run_id)
            fresh = await asyncio.to_thread(client.run, "wf_hello", "{}", "k2", wait=30)
            assert fresh.document["state"] == "succeeded"


@pytest.mark.timeout(120)
async def test_a_folder_that_holds_nothing_yet_is_watched_and_no_last_version_is_made_up(folder: Path) -> None:
    flow = folder / "flows" / "hello.yaml"
    flow.unlink()
    async with dev(folder) as session:
        await session.hears("not published:")
        flow.write_text(FLOW.format(duration="20ms"))
        await session.hears("wf_hello 3-dev.1")


@pytest.mark.timeout(120)
async def test_ctrl_c_during_the_start_is_answered_at_once_and_leaves_nothing(folder: Path) -> None:
    async with dev(folder) as session:
        await session.hears("starting postgres")
        session.process.send_signal(signal.SIGINT)
        await session.hears("stopping ...", 3)
        assert await asyncio.wait_for(session.process.wait(), 60) == 0
        assert "A44_TOKEN" not in session.said
