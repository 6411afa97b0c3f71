"""A TCP proxy before a server, for tests of what happens between two machines: cut, silent, or an answer lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

CHUNK = 1 << 16


class Wire:
    """`dsn` leads through the proxy. What a client sends goes to `on_request` first, which may answer False to keep it
    from the server; answers of the server stop while `is_mute`. A frozen connection stays open and carries nothing.
    """

    def __init__(self, dsn: str) -> None:
        self._far = dsn
        self.dsn = ""
        self.is_mute = False
        self.on_request: Callable[[bytes], bool] = lambda _: True
        self.accepted = 0
        self._frozen_up_to = 0
        self._open: set[asyncio.StreamWriter] = set()

    def freeze(self) -> None:
        """The connections of now are half open: no end is told, and nothing comes any more. New ones work."""
        self._frozen_up_to = self.accepted

    def cut(self) -> None:
        """All connections break, as when a cable is pulled and plugged in again."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        self._open.add(answer)
        try:
            place = urlsplit(self._far)
            far, request = await asyncio.open_connection(place.hostname, place.port)
            self._open.add(request)
            pumps = [
                asyncio.create_task(self._ask(near, request, number)),
                asyncio.create_task(self._answer(far, answer, number)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for writer in (answer, request):
                writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            self._open.discard(request)
        except OSError:
            answer.transport.abort()  # the server is away: so is the proxy
        finally:
            self._open.discard(answer)

    async def _ask(self, near: asyncio.StreamReader, request: asyncio.StreamWriter, number: int) -> None:
        with suppress(ConnectionError):
            while data := await near.read(CHUNK):
                if number > self._frozen_up_to and self.on_request(data):
                    request.write(data)

    async def _answer(self, far: asyncio.StreamReader, answer: asyncio.StreamWriter, number: int) -> None:
        with suppress(ConnectionError):
            while data := await far.read(CHUNK):
                if number > self._frozen_up_to and not self.is_mute:
                    answer.write(data)


@asynccontextmanager
async def wire_to(dsn: str, kind: type[Wire] = Wire) -> AsyncIterator[Wire]:
    wire = kind(dsn)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parts = urlsplit(dsn)
    login = parts.netloc.rpartition("@")[0]
    wire.dsn = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))
    try:
        yield wire
    finally:
        server.close()
        wire.cut()
        await server.wait_closed()
