"""The bare step host: `python -m benchmarks.bare_path.host FD` runs three no-op steps for many runs at once."""

import asyncio
import os
import socket
import sys
from typing import Any

from benchmarks.bare_path.frames import Frames

STEPS = ("one", "two", "three")


async def noop() -> dict[str, bool]:
    return {"ok": True}


class Host:
    """A body goes on to its next step only when the executor says that the last result is on record."""

    def __init__(self) -> None:
        self._recorded: dict[int, asyncio.Future[None]] = {}
        self._bodies: set[asyncio.Task[None]] = set()
        self.frames = Frames(self._heard, lambda: os._exit(0))

    def _heard(self, message: list[Any]) -> None:
        if len(message) > 1:
            self._recorded.pop(message[0]).set_result(None)
            return
        body = asyncio.ensure_future(self._body(message[0]))
        self._bodies.add(body)
        body.add_done_callback(self._bodies.discard)

    async def _body(self, run: int) -> None:
        for step in STEPS:
            result = await noop()
            is_last = step == STEPS[-1]
            self.frames.send(run, step, result, is_last)
            if not is_last:
                recorded = self._recorded[run] = asyncio.get_running_loop().create_future()
                await recorded


async def main(descriptor: int) -> None:
    ours = socket.socket(fileno=descriptor)
    ours.setblocking(False)
    host = Host()
    await asyncio.get_running_loop().create_connection(lambda: host.frames, sock=ours)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
