"""One transaction as one flush: statements go out together, from BEGIN to Sync, with no client turn inside.

A process that stops in the middle therefore holds no row lock: the server has the whole transaction, or
none of it. Answers are read after the commit. A batch that a deadlock or a missing partition undid is repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from processors.adapters.postgres.arrays import with_literals
from processors.adapters.postgres.flush import Call, call, flush
from processors.adapters.postgres.partitions import make_missing_one, missing_one
from processors.ports import crash_points
from schemas.errors import Broken, Unavailable

_log = structlog.get_logger("batches")
Statement = tuple[str, Mapping[str, Any]]
_BEGIN: Final = call("begin", {})
_COMMIT: Final = call("commit", {})
_TRIES: Final = 10
_UNDONE_BY_OTHERS: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock


class SessionOverError(Exception):
    """The fence: this session is dead, or another connection has taken it into a newer epoch."""


class ConnectionLostError(Exception):
    """The connection broke; whether the transaction was committed is not known."""


async def commit(conn: AsyncConnection[TupleRow], batch: Sequence[Statement]) -> list[list[TupleRow]]:
    """Run the statements in one transaction; answer the rows of each. Nothing is committed when it raises,
    except for `ConnectionLostError`, which does not know.
    """
    try:
        sent = [call(text, with_literals(params)) for text, params in batch]
        for left in reversed(range(_TRIES)):
            try:
                return await _attempt(conn, sent)
            except psycopg.Error as exc:
                await _clear(conn)
                if not left or not await _may_repeat(conn, exc):
                    raise
    except psycopg.Error as exc:
        told = _translated(exc, conn)
        if isinstance(told, ConnectionLostError):
            await conn.close()  # a broken pipeline may leave it looking open
        raise told from exc
    except UnicodeEncodeError as exc:
        await _clear(conn)
        raise Broken("E_INTERNAL", "a batch holds text with half of a surrogate pair") from exc
    raise AssertionError("the last try answers or raises")


async def _attempt(conn: AsyncConnection[TupleRow], sent: Sequence[Call]) -> list[list[TupleRow]]:
    if crash_points.is_armed("after_statements_before_commit"):
        # The server has run them then; inside a transaction a Sync commits nothing.
        answers = await flush(conn, [_BEGIN, *sent])
        crash_points.reach("after_statements_before_commit")
        return [*answers, *await flush(conn, [_COMMIT])][1:-1]
    return (await flush(conn, [_BEGIN, *sent, _COMMIT]))[1:-1]


async def _may_repeat(conn: AsyncConnection[TupleRow], exc: psycopg.Error) -> bool:
    """Whether the same batch may succeed now. A partition that a row did not find is made on the way."""
    if exc.sqlstate in _UNDONE_BY_OTHERS:
        _log.info("batch_repeated", sqlstate=exc.sqlstate)
        return True
    missing = missing_one(exc)
    if missing is None:
        return False
    await make_missing_one(conn, *missing)
    return True


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
