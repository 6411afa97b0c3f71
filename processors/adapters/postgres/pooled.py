"""Questions through a pool: driver errors become ours, and a question survives a restart of Postgres.

Only what may be asked twice goes through `ask` and `read`; what writes uses `borrowed` and is not repeated.
Whoever waits longer than the pool's own timeout for a connection hears `Unavailable`, and so does everybody
at once behind many who wait already: slow questions fill their own pool and nothing else.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import AsyncRowFactory, TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from schemas.errors import Unavailable

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
Row = TypeVar("Row")
Result = TypeVar("Result")

# The pool tries anew for a connection only when somebody asks: so we ask this often while Postgres is away.
ASK_SECONDS = 0.5


@asynccontextmanager
async def borrowed(pool: Pool) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection of the pool. Raises `Unavailable` when none is to be had, or Postgres goes away inside the block."""
    try:
        conn = await _have(pool)
        try:
            async with conn:
                yield conn
        finally:
            await pool.putconn(conn)
    except (PoolTimeout, TooManyRequests) as exc:
        raise Unavailable("E_UNAVAILABLE", f"no connection to Postgres was free: {exc}") from exc
    except psycopg.OperationalError as exc:
        raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer: {str(exc).strip()}") from exc


async def _have(pool: Pool) -> AsyncConnection[TupleRow]:
    deadline = time.monotonic() + pool.timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return await pool.getconn(timeout=min(ASK_SECONDS, max(left, 0.001)))
        except PoolTimeout:
            if left <= ASK_SECONDS:
                raise


async def read(pool: Pool, question: Callable[[AsyncConnection[TupleRow]], Awaitable[Result]]) -> Result:
    """The answer to what only reads; asked again where the connection died, as long as one may wait for one."""
    deadline = time.monotonic() + pool.timeout
    while True:
        try:
            async with borrowed(pool) as conn:
                return await question(conn)
        except Unavailable as exc:
            if not _was_cut(exc.__cause__) or time.monotonic() > deadline:
                raise
        await pool.check()


async def ask(
    pool: Pool, statement: str, parameters: Mapping[str, Any], row_factory: AsyncRowFactory[Row]
) -> list[Row]:
    """All rows of one statement, as `read` asks."""

    async def question(conn: AsyncConnection[TupleRow]) -> list[Row]:
        async with conn.cursor(row_factory=row_factory) as cursor:
            await cursor.execute(statement, parameters)
            return await cursor.fetchall()

    return await read(pool, question)


def _was_cut(cause: BaseException | None) -> bool:
    """Whether the connection broke, in contrast to: none could be had, or the server refused the work."""
    if isinstance(cause, PoolClosed | PoolTimeout | TooManyRequests) or not isinstance(cause, psycopg.OperationalError):
        return False
    return cause.sqlstate is None or cause.sqlstate.startswith(("08", "57P"))
