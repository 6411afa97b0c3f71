"""One role in a process of its own, started by the public command and kept from outliving us.

Its log lines go to a file; a role is ready when it says so there.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.embedded.process import Kept, Plan

READY_SECONDS = 30.0
STOP_SECONDS = 12.0
LOOK_SECONDS = 0.03
PASSED_ON = ("HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE")


class RoleProcess:
    """`environment` holds the role's settings; of our own environment only little is passed on."""

    def __init__(self, role: str, environment: Mapping[str, str], log: Path) -> None:
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self.role = role
        self._plan = Plan(
            name=f"the role {role}",
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

    async def start(self) -> Mapping[str, Any]:
        """What the role said when it was ready. Raises `Unavailable` with its last lines when it ends or is silent."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        self._kept = await Kept.start(self._plan)
        try:
            async with asyncio.timeout(READY_SECONDS):
                while self._kept.is_running:
                    for line in self.log.read_bytes()[begun:].splitlines():
                        if b'"event": "ready"' in line and line.endswith(b"}"):
                            told: dict[str, Any] = json.loads(line)
                            return told
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise self._kept.failure(f"was not ready within {READY_SECONDS:.0f} s") from None
        raise self._kept.failure("ended before it was ready")

    async def ended(self) -> str:
        """Returns when the process ended: how, and its last words."""
        code = await self._running().wait()
        return f"the role {self.role} ended with exit status {code}:\n{self._running().log_tail()}"

    async def stop(self) -> None:
        """In good order, and by force after a while."""
        if self._kept is not None:
            await self._kept.stop()

    async def kill(self) -> None:
        """As a crash would."""
        await self._running().kill()

    def _running(self) -> Kept:
        if self._kept is None:
            raise RuntimeError(f"the role {self.role} was not started")
        return self._kept
