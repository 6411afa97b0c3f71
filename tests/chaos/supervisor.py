"""Starts a role again that ended by itself, as whoever runs the service does, and keeps its last words."""

import asyncio

from ops.local import LocalStack
from ops.local.role_process import RoleProcess

LOOK_SECONDS = 0.5
LAST_WORDS = 2000


class Supervisor:
    """`handled` are those whose end and start are somebody else's at the moment; `ended` are the last words."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack
        self.handled: set[str] = set()
        self.ended: list[str] = []

    async def run(self) -> None:
        while True:
            for process in list(self._stack.processes.values()):
                if not process.is_running and process.name not in self.handled:
                    await self._again(process)
            await asyncio.sleep(LOOK_SECONDS)

    async def _again(self, process: RoleProcess) -> None:
        self.ended.append((await process.ended())[-LAST_WORDS:])
        self.handled.add(process.name)
        try:
            await process.start()
        finally:
            self.handled.discard(process.name)
