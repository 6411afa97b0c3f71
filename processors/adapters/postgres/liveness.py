"""A session's sign of life: an advisory lock on a connection that does nothing else while the process is there.

The kernel closes the connection of a process that died, Postgres lets go of the lock, and the scheduler's next
looks find it free. A connection that breaks while the process lives is made anew at once. Behind a pooler that
shares connections the lock would tell of somebody else: then the session goes unwatched, and its lease decides.
"""

import asyncio
from contextlib import suppress

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from schemas.errors import AutomationError

_log = structlog.get_logger("liveness")
RETRY_SECONDS = 0.1
# A machine that vanished closes nothing; one that stands still for a while must not be taken for it. Both sides ask,
# and give up when half of the lease is over: idle time and two probes, a sixth of the lease each.
_PROBES = 2
_SHARE_OF_LEASE = 6


class Liveness:
    """Held for one session at a time. `lease` is the session's, in seconds."""

    def __init__(self, dsn: str, lease: float) -> None:
        seconds = max(int(lease / _SHARE_OF_LEASE), 1)
        client = {"keepalives_idle": seconds, "keepalives_interval": seconds, "keepalives_count": _PROBES}
        self._dsn = make_conninfo(dsn, keepalives=1, **client)
        self._options = " ".join(f"-c tcp_{name}={value}" for name, value in client.items())
        self._keeping: asyncio.Task[None] | None = None

    async def hold(self, session: int) -> None:
        """From now on for this session; the one before is let go."""
        await self.let_go()
        self._keeping = asyncio.create_task(self._keep(session))

    async def let_go(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    async def _keep(self, session: int) -> None:
        """Until cancelled, or until it is known that nothing can be held here."""
        while True:
            try:
                conn = await connect(self._dsn, "liveness", self._options)
                async with conn:
                    if not await _is_direct(conn):
                        _log.warning(
                            "session_unwatched",
                            session=session,
                            reason="a pooler that shares connections stands before Postgres: the end of this process "
                            "is noticed when its lease is over; give executors a direct address",
                        )
                        await conn.execute(statements("executor")["unwatch_session"], {"session": session})
                        return
                    if await self._take(conn, session):
                        await _until_broken(conn)
            except (psycopg.Error, AutomationError) as exc:
                _log.info("liveness_lost", session=session, reason=str(exc).strip())
            await asyncio.sleep(RETRY_SECONDS)

    async def _take(self, conn: AsyncConnection[TupleRow], session: int) -> bool:
        """Not at the first try where an older connection of ours, or a look, still has it."""
        sql, asked = statements("executor"), {"session": session}
        row = await (await conn.execute(sql["take_liveness"], asked)).fetchone()
        if row is None or not row[0]:
            return False
        await conn.execute(sql["watch_session"], asked)
        return True


async def _is_direct(conn: AsyncConnection[TupleRow]) -> bool:
    """Whether the server process that answers is the one that the connection was opened to."""
    row = await (await conn.execute(statements("executor")["backend"])).fetchone()
    return row is not None and row[0] == conn.info.backend_pid


async def _until_broken(conn: AsyncConnection[TupleRow]) -> None:
    """Nothing is listened to: the socket becomes readable when the connection ends, and the driver raises."""
    async for _ in conn.notifies():
        pass
