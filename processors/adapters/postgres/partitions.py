"""Partitions of the log: always there before they are needed, and days of the outbox gone when they are over.

Nothing here stands in anybody's way: no statement takes a lock that readers or writers of the parent table
meet, each waits 200 ms at most and comes again at the next upkeep. A partition that is missing all the same
is made by whoever meets the lack, `make_missing_one`; nothing that was to be written is lost.
"""

import re
from datetime import UTC, datetime
from typing import Final

import psycopg
import structlog
from psycopg import AsyncConnection, sql
from psycopg.errors import LockNotAvailable, ObjectNotInPrerequisiteState, UndefinedTable
from psycopg.rows import TupleRow

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from processors.ports.measures import Measures
from schemas.errors import Unavailable
from schemas.ids import event_millis

_log = structlog.get_logger("partitions")
MONTHS_AHEAD: Final = 3
DAYS_AHEAD: Final = 21
_MOST_DROPS: Final = 5
_TRIES: Final = 10
_NO_PARTITION: Final = "23514"
_FAILING_VALUE: Final = re.compile(r"\((?:day|run_id)\) = \(([^)]+)\)")


async def keep_partitions(dsn: str, keep_days: int, measures: Measures) -> None:
    """Upkeep, by any number of processes: make what will be needed, drop what is over. Raises `Unavailable`."""
    conn = await connect(dsn, "partitions", "-c lock_timeout=200ms")
    async with conn:
        try:
            await _make_ahead(conn)
            for table, days in await _rows(conn, "days_ahead", {}):
                measures.set("partitions_ahead_days", days, table)
            for _ in range(await drop_sent_days(conn, keep_days)):
                measures.count("partitions_dropped_total", 1, "outbox")
        except LockNotAvailable as exc:
            _log.info("partitions_wait", reason=str(exc).strip())
        except psycopg.Error as exc:
            raise Unavailable("E_UNAVAILABLE", f"partitions were not looked after: {str(exc).strip()}") from exc


async def _make_ahead(conn: AsyncConnection[TupleRow]) -> None:
    """Each in a transaction of its own, so that no lock is held for all of them."""
    for parent, at in await _rows(conn, "missing", {"months": MONTHS_AHEAD, "days": DAYS_AHEAD}):
        await _rows(conn, "make", {"parent": parent, "at": at})


def missing_one(exc: psycopg.Error) -> tuple[str, datetime] | None:
    """The table and the instant whose partition a row did not find; None where the error is another."""
    table, value = exc.diag.table_name, _FAILING_VALUE.search(exc.diag.message_detail or "")
    if exc.sqlstate != _NO_PARTITION or exc.diag.constraint_name or table is None or value is None:
        return None
    told = value.group(1)
    if table == "outbox":
        return table, datetime.fromisoformat(told).replace(tzinfo=UTC)
    millis = event_millis(f"evt_{told.removeprefix('run_')}")
    return None if millis is None else (table, datetime.fromtimestamp(millis / 1000, UTC))


async def make_missing_one(conn: AsyncConnection[TupleRow], table: str, at: datetime) -> None:
    """In a transaction of its own; whoever else meets the same lack may have been quicker. Raises psycopg's errors."""
    _log.error("partition_missing", table=table, at=at.isoformat(), reason="made on demand; is no scheduler running?")
    for left in reversed(range(_TRIES)):
        try:
            await _rows(conn, "make", {"parent": table, "at": at})
        except LockNotAvailable:
            if not left:
                raise
        else:
            return


async def drop_sent_days(conn: AsyncConnection[TupleRow], keep_days: int) -> int:
    """Drop a few days that are over and wholly sent, on an autocommit connection; answers how many.

    A day is never dropped with a row that was not sent. Whatever was begun and not finished is finished first.
    """
    dropped = 0
    for day, is_attached, is_pending in await _rows(conn, "days_that_are_over", {"keep": keep_days, "most": 50}):
        try:
            if not await _drop_day(conn, day, is_attached=is_attached, is_pending=is_pending):
                continue
        except (UndefinedTable, ObjectNotInPrerequisiteState) as exc:
            _log.info("partition_left", partition=day, reason=f"another process drops it: {str(exc).strip()}")
            continue
        _log.info("partition_dropped", table="outbox", partition=day, reason="wholly sent")
        dropped += 1
        if dropped == _MOST_DROPS:
            break
    return dropped


async def _drop_day(conn: AsyncConnection[TupleRow], day: str, *, is_attached: bool, is_pending: bool) -> bool:
    """Says whether the day went; one that holds what was not sent stays."""
    if is_attached and not is_pending:
        if await _is_unsent(conn, day):
            return False
        await _on_day(conn, "mark", day)
        await _on_day(conn, "detach", day)
    elif is_pending:
        await _on_day(conn, "finish_detaching", day)
    await _on_day(conn, "drop", day)
    return True


async def _is_unsent(conn: AsyncConnection[TupleRow], day: str) -> bool:
    row = await (await _on_day(conn, "holds_unsent", day)).fetchone()
    return row is None or bool(row[0])


async def _on_day(conn: AsyncConnection[TupleRow], name: str, day: str) -> psycopg.AsyncCursor[TupleRow]:
    statement = sql.SQL(statements("partitions")[name])
    return await conn.execute(statement.format(day=sql.Identifier(day)), prepare=False)


async def _rows(conn: AsyncConnection[TupleRow], name: str, params: dict[str, object]) -> list[TupleRow]:
    return await (await conn.execute(statements("partitions")[name], params)).fetchall()
