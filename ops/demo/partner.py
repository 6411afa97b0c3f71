"""The examples' partner service as a process of its own, and what it was asked."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


class Partner:
    def __init__(self, url: str) -> None:
        self.url = url

    async def log(self) -> list[dict[str, Any]]:
        """Every request in the order in which the partner took it."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/log", timeout=10) as answer:  # noqa: S310  our own loopback server
            entries: list[dict[str, Any]] = json.loads(answer.read())
            return entries


@asynccontextmanager
async def open_partner(program: Path, fail_every: int) -> AsyncIterator[Partner]:
    """Runs while the block is open; every n-th new key is answered with 503 the first time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), "--fail-every", str(fail_every), stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is None:
        raise RuntimeError("a pipe was asked for")
    try:
        yield Partner(json.loads(await process.stdout.readline())["url"])
    finally:
        process.terminate()
        await process.wait()
