"""A proxy before Postgres that does what a shared pooler does: it tells clients a process id of its own."""

import asyncio
import struct
from contextlib import suppress
from types import TracebackType
from typing import Self

KEY_DATA = b"K"
HEADER = struct.Struct("!cI")


class PretendingPooler:
    """`async with PretendingPooler(host, port) as pooler:` listens on `pooler.port`, without TLS."""

    port: int

    def __init__(self, host: str, port: int) -> None:
        self._server_at = host, port
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream, downstream = await asyncio.open_connection(*self._server_at)
        ways = [
            asyncio.create_task(_copy(reader, downstream)),
            asyncio.create_task(_copy_with_another_pid(upstream, writer)),
        ]
        self._tasks.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for side in (writer, downstream):
            side.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()


async def _copy_with_another_pid(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Message by message: type, length, payload."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await source.readexactly(HEADER.size)
            kind, length = HEADER.unpack(head)
            payload = await source.readexactly(length - 4)
            if kind == KEY_DATA:
                (pid,) = struct.unpack("!I", payload[:4])
                payload = struct.pack("!I", pid ^ 1) + payload[4:]
            target.write(head + payload)
            await target.drain()
