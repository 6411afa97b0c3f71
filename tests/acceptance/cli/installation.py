"""An installation made with the command line alone: `a44 migrate`, `a44 auth token create`, `a44 up`."""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = "pj_shop"
READY_SECONDS = 60.0
COMMAND_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class CommandLine:
    """`a44` as a person runs it: a process of its own with this environment, in this folder."""

    environment: dict[str, str]
    folder: Path

    async def __call__(self, *arguments: str, stdin: bytes = b"") -> Outcome:
        process = await self.start(*arguments)
        async with asyncio.timeout(COMMAND_SECONDS):
            out, err = await process.communicate(stdin)
        return Outcome(process.returncode or 0, out.decode(), err.decode())

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        kept = {name: value for name, value in os.environ.items() if not name.startswith("A44_")}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ops.cli",
            *arguments,
            cwd=self.folder,
            env={**kept, **self.environment},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )


@asynccontextmanager
async def installation(settings: Mapping[str, str], folder: Path, roles: str) -> AsyncIterator[CommandLine]:
    """Migrated and running; the command line is logged in with a token that it made."""
    environment = {
        "A44_HOME": str(folder / "home"),
        "A44_MASTER_KEY": secrets.token_hex(32),
        "A44_GATEWAY_PORT": "0",
        **settings,
    }
    operator = CommandLine(environment, folder)
    migrated = await operator("migrate", "--json")
    assert migrated.code == 0, migrated.err
    arguments = ("--project", PROJECT, "--name", "tests", "--expires", "1h")
    scopes = ("--scope", "automation:read", "--scope", "automation:write")
    made = await operator("auth", "token", "create", *arguments, *scopes)
    assert made.code == 0, made.err
    async with running(operator, roles) as url:
        user = CommandLine({"A44_HOME": str(folder / "home")}, folder)
        logged_in = await user("auth", "login", "--project", PROJECT, "--url", url, stdin=made.out.encode())
        assert logged_in.code == 0, logged_in.err
        yield user


@asynccontextmanager
async def running(operator: CommandLine, roles: str) -> AsyncIterator[str]:
    """`a44 up` until the end of the block; yields the gateway's address. It must end in good order."""
    process = await operator.start("up", "--roles", roles)
    said: list[str] = []
    reading: asyncio.Task[None] | None = None
    try:
        url = await asyncio.wait_for(_until_ready(process, set(roles.split(",")), said), READY_SECONDS)
        reading = asyncio.create_task(_keep(process, said))
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), READY_SECONDS)
        if reading is not None:
            await reading
        process._transport.close()  # type: ignore[attr-defined]  # closes the pipes now, not when collected
    assert code == 0, "".join(said[-30:])


async def _until_ready(process: asyncio.subprocess.Process, waiting: set[str], said: list[str]) -> str:
    """Reads the log until each role said that it is ready; answers the gateway's address."""
    url = ""
    while waiting:
        for told in _objects(await _line(process, said)):
            if told.get("event") == "ready":
                waiting.discard(told["role"])
                url = told.get("url", url)
    return url


def _objects(line: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a line: two threads that log at once may share one."""
    rest = line.strip()
    while rest.startswith("{"):
        told, end = json.JSONDecoder().raw_decode(rest)
        yield told
        rest = rest[end:].strip()


async def _line(process: asyncio.subprocess.Process, said: list[str]) -> str:
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    said.append(line)
    assert line, "it ended before it was ready:\n" + "".join(said[-30:])
    return line


async def _keep(process: asyncio.subprocess.Process, said: list[str]) -> None:
    assert process.stderr is not None
    said.extend([line.decode() async for line in process.stderr])
