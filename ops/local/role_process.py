"""One role in a process of its own, started by the public command and kept from outliving us.

Its log lines go to a file; a role is ready when it says so there. It can be killed, paused and started again, with
more in its environment for one life.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.embedded.process import Kept, Plan

READY_SECONDS = 120.0  # an interpreter on a busy machine needs half a minute
STOP_SECONDS = 12.0
LOOK_SECONDS = 0.03
PASSED_ON = ("HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE")


class RoleProcess:
    """`name` tells processes of one role apart. `environment` holds the role's settings; of our own environment only
    little is passed on. `told` is what the role said when it was last ready: the gateway its `url`, for example.
    """

    def __init__(self, role: str, environment: Mapping[str, str], log: Path, name: str = "") -> None:
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self.role = role
        self.name = name or role
        self.told: Mapping[str, Any] = {}
        self._plan = Plan(
            name=f"the role {self.name}",
            command=(sys.executable, "-m", "ops.cli", "up", "--roles", role),
            cwd=log.parent,
            log=log,
            env={**passed, **environment},
            grace=STOP_SECONDS,
        )
        self._kept: Kept | None = None

    @property
    def log(self) -> Path:
        return self._plan.log

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._kept is not None and self._kept.is_running

    async def start(self, environment: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """What the role said when it was ready. `environment` holds for this life only.

        Raises `Unavailable` with its last lines when it ends or is silent.
        """
        if self.is_running:
            raise RuntimeError(f"the role {self.name} is running already")
        begun = self.log.stat().st_size if self.log.exists() else 0
        kept = self._kept = await Kept.start(replace(self._plan, env={**(self._plan.env or {}), **(environment or {})}))
        try:
            async with asyncio.timeout(READY_SECONDS):
                while kept.is_running:
                    for line in self.lines(begun):
                        if line.get("event") == "ready":
                            self.told = line
                            return line
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise kept.failure(f"was not ready within {READY_SECONDS:.0f} s") from None
        raise kept.failure("ended before it was ready")

    def lines(self, offset: int = 0) -> Iterator[dict[str, Any]]:
        """Its whole JSON log lines from a place in the file on."""
        with self.log.open("rb") as file:
            file.seek(offset)
            for line in file:
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    yield json.loads(line)

    async def ended(self) -> str:
        """Returns when the process ended: how, and its last words."""
        code = await self._running().wait()
        return f"the role {self.name} ended with exit status {code}:\n{self._running().log_tail()}"

    async def stop(self) -> None:
        """In good order, and by force after a while; a paused one goes on first."""
        if self._kept is not None:
            self._kept.send(signal.SIGCONT)
            await self._kept.stop()

    async def kill(self) -> None:
        """As a crash would."""
        await self._running().kill()

    def pause(self) -> None:
        """Not a step further until `go_on`, as on a machine that swaps or a host that is moved."""
        self._running().send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._running().send(signal.SIGCONT)

    def children(self) -> Sequence[int]:
        """Processes that it started itself; of an executor, its step hosts. Linux only."""
        ours = str(self.pid)
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it ended while we looked
                state, parent = entry.read_text().rpartition(")")[2].split()[:2]
                if parent == ours and state != "Z":
                    found.append(int(entry.parent.name))
        return sorted(found)

    def _running(self) -> Kept:
        if self._kept is None:
            raise RuntimeError(f"the role {self.name} was not started")
        return self._kept
