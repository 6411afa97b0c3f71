"""HTTP load from a process of its own: ready-made requests over kept connections, and how long each took.

The client must not be the bound: no library, one protocol object a connection, about 20 us a request. Its own CPU time
is told apart.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import uvloop

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """`requests` go out whole, as soon as a connection is free, or `per_second` of them where that is given."""

    host: str
    port: int
    requests: Sequence[bytes]
    connections: int
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Seconds; `took` is sorted. With `per_second` a request takes from the moment that it was due."""

    seconds: float
    took: Sequence[float]
    statuses: Counter[int]
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return len(self.took) / self.seconds

    def percentile_ms(self, share: float) -> float:
        return 1e3 * self.took[min(int(len(self.took) * share), len(self.took) - 1)]


def drive(load: Load) -> Told:
    """Send it all from a new process; answers when the last answer is there."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_drive, load).result()


def _drive(load: Load) -> Told:
    return uvloop.run(_Driver(load).run())


class _Driver:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._due = iter(load.requests)
        self._took: list[float] = []
        self._statuses: Counter[int] = Counter()
        self._late: list[tuple[bytes, float]] = []
        self._idle: list[_Connection] = []
        self._all = asyncio.Event()

    async def run(self) -> Told:
        loop, load = asyncio.get_running_loop(), self._load
        made = [
            (await loop.create_connection(lambda: _Connection(self._answered), load.host, load.port))[1]
            for _ in range(load.connections)
        ]
        begun, used = time.perf_counter(), time.process_time()
        if load.per_second is None:
            for connection in made:
                self._next(connection)
        else:
            self._idle = list(made)
            await self._pace(begun, load.per_second)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._all.wait()
        seconds = time.perf_counter() - begun
        return Told(seconds, sorted(self._took), self._statuses, time.process_time() - used)

    async def _pace(self, begun: float, per_second: float) -> None:
        for number, request in enumerate(self._load.requests):
            due = begun + number / per_second
            early = due - time.perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            if self._idle:
                self._idle.pop().send(request, due)
            else:
                self._late.append((request, due))

    def _next(self, connection: "_Connection") -> None:
        request = next(self._due, None)
        if request is not None:
            connection.send(request, time.perf_counter())

    def _answered(self, connection: "_Connection", status: int, took: float) -> None:
        self._took.append(took)
        self._statuses[status] += 1
        if len(self._took) == len(self._load.requests):
            self._all.set()
        elif self._load.per_second is None:
            self._next(connection)
        elif self._late:
            connection.send(*self._late.pop(0))
        else:
            self._idle.append(connection)


class _Connection(asyncio.Protocol):
    """One request at a time; an answer has a content length."""

    def __init__(self, answered: Callable[["_Connection", int, float], None]) -> None:
        self._answered = answered
        self._got = b""
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, request: bytes, since: float) -> None:
        self._since = since
        self._transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._got += data
        head_end = self._got.find(_HEAD_END)
        if head_end < 0:
            return
        head = self._got[:head_end].lower()
        at = head.index(_LENGTH) + len(_LENGTH)
        length = int(head[at:].split(b"\r\n", 1)[0])
        if len(self._got) - head_end - len(_HEAD_END) >= length:
            self._got = b""
            self._answered(self, int(head[9:12]), time.perf_counter() - self._since)
