"""The public command, as a user runs it: a process of its own, with nothing but an address and a token."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import Unavailable

AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """`documents` are the JSON lines of stdout; `problem` is the JSON document on stderr of a refusal."""

    code: int
    documents: list[dict[str, Any]]
    problem: dict[str, Any]


class Commands:
    """`home` takes the place of the user's own folder of credentials, so that the demo leaves nothing behind."""

    def __init__(self, url: str, token: str, project: str, home: Path) -> None:
        told = {"A44_URL": url, "A44_TOKEN": token, "A44_PROJECT": project, "A44_HOME": str(home), "NO_COLOR": "1"}
        self._environment: Mapping[str, str] = {**os.environ, **told}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def automation(self, *words: str) -> Outcome:
        """`a44 automation ... --json`."""
        async with self._room:
            out, err, code = await self._run("-m", "ops.cli", "automation", *words, "--json")
        return Outcome(code, [json.loads(line) for line in out.splitlines()], _last_json(err))

    async def python(self, *words: str) -> str:
        """One of the examples' own programs. Raises `Unavailable` with its words when it fails."""
        out, err, code = await self._run(*words)
        if code != 0:
            raise Unavailable("E_UNAVAILABLE", f"{words[0]} ended with {code}: {err.strip()[-500:]}")
        return out.strip()

    async def _run(self, *words: str) -> tuple[str, str, int]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            env=dict(self._environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return out.decode(), err.decode(), process.returncode or 0


def _last_json(text: str) -> dict[str, Any]:
    """The problem document among the lines of stderr; empty where there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            document: dict[str, Any] = json.loads(line)
            return document
    return {}
