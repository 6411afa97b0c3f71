"""Connections to the projects' own databases: few for each project, opened when needed, closed when idle.

An address names host, role and database itself and takes nothing from this process's environment; the
platform's own database and role are refused, whatever the secret says.
"""

import asyncio
import contextlib
import os
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from processors.adapters.postgres.project_sql.failures import unreachable
from processors.adapters.postgres.project_sql.values import prepare_values
from processors.adapters.postgres.statements import statements
from processors.ports.actions import StepFailure
from processors.ports.secrets import Secrets
from schemas.errors import Refused

DATABASE_SECRET = "sec_database"  # noqa: S105 - the name of a secret, not a secret
MOST_CONNECTIONS = 4
IDLE_SECONDS = 60.0

# So libpq looks for no password, file or ticket of whoever runs this process.
_SETTLED = {
    "port": "5432",
    "password": "",
    "passfile": os.devnull,
    "gssencmode": "disable",
    "application_name": "a44-sql",
}
_CONNECT_SECONDS = 10
_FORGET_SECONDS = 2.0
_LEFT_BEHIND = ("let_go", "forget_role", "forget_settings", "forget_tables", "forget_channels", "forget_cursors")
_IDLE_IN_TRANSACTION = "30s"
_NEEDED = ("host", "user", "dbname")
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_Connection = AsyncConnection[TupleRow]


@dataclass(eq=False, slots=True)
class _Lines:
    """One project's connections. `idle` holds the most recently used last."""

    dsn: str
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_CONNECTIONS))
    idle: list[tuple[_Connection, float]] = field(default_factory=list)


class ProjectConnections:
    """`platform_dsn` is the address of the log, which no project may use."""

    def __init__(self, secrets: Secrets, platform_dsn: str | None = None) -> None:
        self._secrets = secrets
        self._platform = conninfo_to_dict(platform_dsn) if platform_dsn else {}
        self._lines: dict[str, _Lines] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._sql = statements("project_sql")

    @asynccontextmanager
    async def transaction(self, project_id: str, seconds: float) -> AsyncIterator[_Connection]:
        """A connection inside a transaction that is committed at the end of the block, or rolled back.

        `seconds` bounds each statement in it.
        """
        lines = self._lines_of(project_id, self._secrets.get(project_id, DATABASE_SECRET))
        async with lines.free:
            connection = await self._begun(lines, seconds)
            try:
                yield connection
                await connection.commit()
            except Exception:
                await _roll_back(connection)
                raise
            except BaseException:  # cancelled: nothing more is awaited from this connection
                await connection.close()
                raise
            finally:
                await self._give_back(lines, connection)

    async def aclose(self) -> None:
        """Close what is idle; connections in use are closed when their block ends."""
        if self._sweep is not None:
            self._sweep.cancel()
        idle = [connection for lines in self._lines.values() for connection, _ in lines.idle]
        self._lines.clear()
        await asyncio.gather(*(connection.close() for connection in idle), *self._closing)

    def _lines_of(self, project_id: str, dsn: str) -> _Lines:
        lines = self._lines.get(project_id)
        if lines is None or lines.dsn != dsn:
            if lines is not None:
                self._close_all(lines)
            lines = self._lines[project_id] = _Lines(dsn)
        return lines

    async def _begun(self, lines: _Lines, seconds: float) -> _Connection:
        """A connection that has just answered. One that died while idle is replaced, not reported."""
        while lines.idle:
            connection, _ = lines.idle.pop()
            with contextlib.suppress(psycopg.OperationalError):
                await self._begin(connection, seconds)
                return connection
        connection = await self._open(lines.dsn, seconds)
        try:
            await self._begin(connection, seconds)
        except psycopg.Error as exc:
            raise StepFailure(unreachable(exc)) from exc
        return connection

    async def _open(self, dsn: str, seconds: float) -> _Connection:
        """A server that does not answer is given up before the step's time is over, so that the error says so."""
        patience = min(_CONNECT_SECONDS, max(2, int(seconds / 2)))  # 2 is the driver's least
        address = make_conninfo(_checked(dsn, self._platform), connect_timeout=patience)
        try:
            connection = await AsyncConnection.connect(address)
        except psycopg.OperationalError as exc:
            # The driver's frames and their errors hold each other, and with them an open socket.
            traceback.clear_frames(exc.__traceback__)
            raise StepFailure(unreachable(exc)) from exc
        prepare_values(connection)
        return connection

    async def _begin(self, connection: _Connection, seconds: float) -> None:
        """Begin the transaction, or close the connection."""
        bounds = {
            "statement_timeout": str(max(1, round(seconds * 1000))),
            "idle_timeout": _IDLE_IN_TRANSACTION,
        }
        try:
            async with connection.pipeline():  # the driver's BEGIN rides along
                await connection.execute(self._sql["bound_transaction"], bounds)
        except BaseException:
            await connection.close()
            raise

    async def _give_back(self, lines: _Lines, connection: _Connection) -> None:
        is_current = lines in self._lines.values()
        idle = connection.info.transaction_status == pq.TransactionStatus.IDLE
        if not is_current or connection.closed or not idle or not await self._forgets(connection):
            await connection.close()
            return
        loop = asyncio.get_running_loop()
        lines.idle.append((connection, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_SECONDS, self._close_idle)

    async def _forgets(self, connection: _Connection) -> bool:
        """Whether what a statement left in its session is gone: it must not reach the next run's statement."""
        try:
            async with asyncio.timeout(_FORGET_SECONDS), connection.pipeline():
                for name in _LEFT_BEHIND:
                    await connection.execute(self._sql[name], prepare=False)
                await connection.commit()
        except (psycopg.Error, TimeoutError):
            return False
        return True

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE_SECONDS
        self._sweep = None
        for lines in self._lines.values():
            while lines.idle and lines.idle[0][1] <= oldest:
                self._close_later(lines.idle.pop(0)[0])
        waiting = [since for lines in self._lines.values() for _, since in lines.idle]
        if waiting:
            self._sweep = loop.call_at(min(waiting) + IDLE_SECONDS, self._close_idle)

    def _close_all(self, lines: _Lines) -> None:
        while lines.idle:
            self._close_later(lines.idle.pop()[0])

    def _close_later(self, connection: _Connection) -> None:
        task = asyncio.get_running_loop().create_task(connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _roll_back(connection: _Connection) -> None:
    """After a failure, which stays the one that is reported."""
    try:
        await connection.rollback()
    except psycopg.Error:
        await connection.close()


def _checked(dsn: str, platform: Mapping[str, object]) -> str:
    """The address to connect to. Raises Refused E_CONFIG, never with a part of the address."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:
        raise _refused("is no Postgres address") from None
    missing = [name for name in _NEEDED if not given.get(name)]
    if missing:
        raise _refused(f"names no {' and no '.join(missing)}")
    if _is_platform(given, platform):
        raise _refused("leads to the platform's own database or role, which holds the log")
    certificate = {} if given.get("sslcert") else {"sslcertmode": "disable"}
    return make_conninfo(**{**_without_environment(), **_SETTLED, **certificate, **given})


def _without_environment() -> dict[str, str]:
    """What libpq would read from this process's `PG...` variables, put back to how it was compiled."""
    found = {}
    for option in pq.Conninfo.get_defaults():
        if option.envvar and option.envvar.decode() in os.environ:
            found[option.keyword.decode()] = (option.compiled or b"").decode()
    return found


def _is_platform(given: Mapping[str, str], platform: Mapping[str, object]) -> bool:
    if not platform or _where(given) != _where(platform):
        return False
    return given["user"] == platform.get("user") or given["dbname"] == platform.get("dbname")


def _where(address: Mapping[str, object]) -> tuple[str, str]:
    host = str(address.get("hostaddr") or address.get("host") or "localhost").lower()
    return "here" if host in _HERE else host, str(address.get("port") or "5432")


def _refused(reason: str) -> Refused:
    return Refused(
        "E_CONFIG",
        f"the secret {DATABASE_SECRET} {reason}; expected an address such as "
        "postgresql://app:...@db.example:5432/shop of a role and database of the project's own",
    )
