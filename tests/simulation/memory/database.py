"""Postgres as its clients meet it: connections that break, transactions that commit out of order, a clock of its own.

A transaction takes its number when it begins and is applied whole when it commits; in between others may commit.
What a client sent goes on without it: a process that dies, or a connection that breaks, leaves it to chance whether a
transaction is committed, and its answer is lost.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from schemas.errors import Unavailable
from tests.simulation.memory.network import Network
from tests.simulation.memory.tables import Tables, Watcher
from tests.simulation.virtual_time import Process

Answer = TypeVar("Answer")
EPOCH = datetime(2026, 7, 31, 23, 59, tzinfo=UTC)


class ConnectionLost(Exception):
    """The connection broke while somebody waited for an answer."""


class Connection:
    """Of one process; after `close` or a break it is of no use any more."""

    def __init__(self, database: "Database", process: Process) -> None:
        self.database = database
        self.process = process
        self.is_open = True
        self.since = database.loop.time()
        self.waiting: dict[asyncio.Future[Any], None] = {}

    def close(self) -> None:
        self.is_open = False
        self.database.connections.pop(self, None)

    def break_now(self) -> None:
        """Whoever waits hears of it at once; what was begun goes on."""
        self.close()
        for future in list(self.waiting):
            if not future.done():
                future.set_exception(ConnectionLost("the connection broke"))
        self.waiting.clear()


class Database:
    """`tables` changes only by `run`."""

    def __init__(self, network: Network, watcher: Watcher) -> None:
        self.tables = Tables(watcher)
        self.network = network
        self.loop = network.loop
        self.connections: dict[Connection, None] = {}
        self.is_up = True
        self.started_at = self.loop.time()
        self.skew = 0.0
        self._next_xid = 100
        self._latest = 99
        self._open: dict[int, None] = {}
        self._commits: dict[int, Callable[[], None]] = {}

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time() + self.skew)

    # connections

    async def connect(self) -> Connection:
        """Raises `Unavailable` while the server is away."""
        await self.network.hop()
        if not self.is_up:
            raise Unavailable("E_UNAVAILABLE", "Postgres refused the connection")
        made = Connection(self, self.loop.current())
        self.connections[made] = None
        return made

    def restart(self, seconds: float) -> None:
        """Every transaction under way is lost or was just committed, and its answer is lost in either case."""
        if not self.is_up:
            return
        self.is_up = False
        for xid in list(self._open):
            if self.network.chance(0.5):
                self._commits[xid]()
            else:
                self._close(xid)
        for connection in list(self.connections):
            connection.break_now()
        self.network.after(seconds, self._start)

    def _start(self) -> None:
        self.is_up, self.started_at = True, self.loop.time()

    # transactions

    async def run(self, connection: Connection, work: Callable[[Tables, int], Answer]) -> Answer:
        """A transaction that writes. Raises what `work` raises (then nothing was written) and `ConnectionLost`."""
        answer: Answer = await self._ask(connection, self._begin, work)
        return answer

    async def read(self, connection: Connection, work: Callable[[Tables], Answer]) -> Answer:
        """One look, in a snapshot of its own. Raises `ConnectionLost`."""
        answer: Answer = await self._ask(connection, self._look, work)
        return answer

    async def _ask(self, connection: Connection, server: Callable[..., None], work: Callable[..., Any]) -> Any:
        if not connection.is_open or not self.is_up:
            connection.close()
            raise ConnectionLost("the connection is closed")
        future: asyncio.Future[Any] = self.loop.create_future()
        connection.waiting[future] = None
        self.network.after(self.network.delay(), server, connection, work, future)
        try:
            return await future
        finally:
            connection.waiting.pop(future, None)

    def _look(self, connection: Connection, work: Callable[[Tables], Any], future: "asyncio.Future[Any]") -> None:
        if connection.is_open and self.is_up and connection.process.is_alive:
            self._answer(connection, future, work(self.tables), None)

    def _begin(self, connection: Connection, work: Callable[..., Any], future: "asyncio.Future[Any]") -> None:
        is_cut = not connection.is_open or not connection.process.is_alive
        if not self.is_up or connection.since < self.started_at or (is_cut and self.network.chance(0.5)):
            return  # it never arrived; what was sent before a cut may arrive after it
        xid = self.begin()
        self._commits[xid] = partial(self._finish, connection, xid, work, future)
        self.network.after(self.network.work_time(), self._commit, xid)

    def _commit(self, xid: int) -> None:
        if xid in self._open:  # else the server went down with it
            self._commits[xid]()

    def _finish(
        self, connection: Connection, xid: int, work: Callable[..., Any], future: "asyncio.Future[Any]"
    ) -> None:
        answer, error = None, None
        try:
            answer = work(self.tables, xid)
        except Exception as exc:  # noqa: BLE001  it belongs to whoever asked
            error = exc
        self._close(xid)
        if isinstance(error, AssertionError):
            raise error
        if error is None:
            self.tables.watcher.committed()
        self._answer(connection, future, answer, error)

    def _answer(
        self, connection: Connection, future: "asyncio.Future[Any]", answer: Any, error: Exception | None
    ) -> None:
        def arrive() -> None:
            if future.done() or not connection.is_open:
                return
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        self.network.after(self.network.delay(), arrive)

    # numbers of transactions

    def begin(self) -> int:
        """A transaction that has begun to write; `end` it."""
        xid, self._next_xid = self._next_xid, self._next_xid + 1
        self._open[xid] = None
        self._commits[xid] = partial(self._close, xid)
        return xid

    def end(self, xid: int, work: Callable[[Tables, int], None]) -> None:
        if xid in self._open:
            work(self.tables, xid)
            self._close(xid)

    def _close(self, xid: int) -> None:
        del self._open[xid], self._commits[xid]
        self._latest = max(self._latest, xid)

    def upper(self) -> int:
        """As `pg_snapshot_xmax`: one past the newest transaction that is over."""
        return self._latest + 1

    def oldest_open(self, upper: int) -> int:
        return min((xid for xid in self._open if xid < upper), default=upper)
