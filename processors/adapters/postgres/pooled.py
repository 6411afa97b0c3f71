"""Questions through a pool: driver errors become ours, and a question survives a restart of Postgres.

Only what may be asked twice goes through `ask`; transactions that write use `borrowed` and are not repeated.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import AsyncRowFactory, TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from schemas.errors import Unavailable

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
Row = TypeVar("Row")

_PATIENCE = 5.0  # seconds for a free connection: longer, and callers pile up behind a database that is away


@asynccontextmanager
async def borrowed(pool: Pool) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection of the pool. Raises `Unavailable` when Postgres is away, then and inside the block."""
    try:
        async with pool.connection(timeout=_PATIENCE) as conn:
            yield conn
    except psycopg.OperationalError as exc:
        raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer: {str(exc).strip()}") from exc


async def ask(
    pool: Pool, statement: str, parameters: Mapping[str, Any], row_factory: AsyncRowFactory[Row]
) -> list[Row]:
    """All rows of a question; asked once more where the pool handed out a connection that was dead."""
    try:
        return await _ask_once(pool, statement, parameters, row_factory)
    except Unavailable as exc:
        if not _was_cut(exc.__cause__):
            raise
    await pool.check()
    return await _ask_once(pool, statement, parameters, row_factory)


def _was_cut(cause: BaseException | None) -> bool:
    """Whether the connection broke, in contrast to: none could be had, or the server refused the work."""
    if isinstance(cause, PoolClosed | PoolTimeout) or not isinstance(cause, psycopg.OperationalError):
        return False
    return cause.sqlstate is None or cause.sqlstate.startswith(("08", "57P"))


async def _ask_once(
    pool: Pool, statement: str, parameters: Mapping[str, Any], row_factory: AsyncRowFactory[Row]
) -> list[Row]:
    async with borrowed(pool) as conn, conn.cursor(row_factory=row_factory) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()
