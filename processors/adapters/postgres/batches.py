"""One transaction as one flush: statements go out together, from BEGIN to Sync, with no client turn inside.

A process that stops in the middle therefore holds no row lock: the server has the whole transaction, or
none of it. Answers are read after the commit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from processors.adapters.postgres.arrays import with_literals
from schemas.errors import Broken, Unavailable

Statement = tuple[str, Mapping[str, Any]]


class SessionOverError(Exception):
    """The fence: this session is dead, or another connection has taken it into a newer epoch."""


class ConnectionLostError(Exception):
    """The connection broke; whether the transaction was committed is not known."""


async def commit(conn: AsyncConnection[TupleRow], batch: Sequence[Statement]) -> list[list[TupleRow]]:
    """Run the statements in one transaction; answer the rows of each. Nothing is committed when it raises,
    except for `ConnectionLostError`, which does not know.
    """
    cursors: list[AsyncCursor[TupleRow]] = []
    sent = [(text, with_literals(params)) for text, params in batch]
    try:
        async with conn.pipeline():
            await conn.execute("begin", prepare=False)
            cursors = [await conn.cursor(binary=True).execute(text, params) for text, params in sent]
            await conn.execute("commit", prepare=False)
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]
    except psycopg.Error as exc:
        await _clear(conn)
        told = _translated(exc, conn)
        if isinstance(told, ConnectionLostError):
            await conn.close()  # a broken pipeline may leave it looking open
        raise told from exc
    except UnicodeEncodeError as exc:
        await _clear(conn)
        raise Broken("E_INTERNAL", "a batch holds text with half of a surrogate pair") from exc


async def _clear(conn: AsyncConnection[TupleRow]) -> None:
    if not conn.closed and conn.info.transaction_status is not TransactionStatus.IDLE:
        try:
            await conn.execute("rollback", prepare=False)
        except psycopg.Error:
            await conn.close()


def _translated(exc: psycopg.Error, conn: AsyncConnection[TupleRow]) -> Exception:
    if exc.sqlstate == "A4401":
        return SessionOverError(str(exc))
    if conn.closed or exc.sqlstate in {"57P01", "57P02", "57P03", "25P03", "25P04"}:
        return ConnectionLostError(str(exc).strip())
    if exc.sqlstate is None:  # said by the driver: about the connection, or about a value that cannot be sent
        is_connection = isinstance(exc, psycopg.OperationalError)
        return ConnectionLostError(str(exc)) if is_connection else Broken("E_INTERNAL", f"an unsendable batch: {exc}")
    if exc.sqlstate[:2] in {"40", "53", "57", "58", "55"}:
        return Unavailable("E_UNAVAILABLE", f"Postgres could not commit now: {exc.sqlstate}")
    return Broken("E_INTERNAL", f"Postgres refused a batch: {exc.sqlstate} {str(exc).strip()}")
