"""Statements in one flush: answered in order, prepared once, large both ways; errors leave no mess."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from processors.adapters.postgres.arrays import literal
from processors.adapters.postgres.batches import ConnectionLostError, commit
from processors.adapters.postgres.connections import connect, cut
from processors.adapters.postgres.flush import call, flush
from schemas.errors import Broken
from tests.support.waiting import until

ECHO = "-- Says it again.\nselect %(value)s::text"
SLEEP = "select pg_sleep(30)"
MEGABYTES = 8 * 1024 * 1024


async def is_asleep(dsn: str, conn: AsyncConnection[Any]) -> None:
    """Return once the server works on the connection's statement."""
    text = "select wait_event = 'PgSleep' from pg_stat_activity where pid = %s"
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:

        async def asleep() -> bool:
            row = await (await other.execute(text, (conn.info.backend_pid,))).fetchone()
            return row is not None and bool(row[0])

        await until(asleep, "a statement under way", 10)


async def forget_by_rollback(conn: AsyncConnection[Any]) -> None:
    """What a refused change does: the driver has statements of its own, and rolls back."""
    for _ in range(3):
        await conn.execute("select %s::text", ("prepared by the driver",))
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with conn.transaction():
            await conn.execute("select 1 / 0")
    names = await (await conn.execute("select name from pg_prepared_statements", prepare=False)).fetchall()
    assert names == []


@pytest_asyncio.fixture
async def conn(log_database: str) -> AsyncIterator[AsyncConnection[Any]]:
    opened = await connect(log_database, "flush")
    async with opened:
        yield opened


async def test_answers_come_in_the_order_of_the_statements(conn: AsyncConnection[Any]) -> None:
    calls = [call(ECHO, {"value": f"number {n}"}) for n in range(50)]
    assert await flush(conn, calls) == [[(f"number {n}",)] for n in range(50)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", "é\N{SNOWMAN}'\"\\"),
        ("text", ""),
        ("text", None),
        ("bigint", -(2**62)),
        ("boolean", True),
        ("double precision", 1e-7),
        ("bytea", b"\0\xff"),
        ("bytea[]", [b"\0", None, b""]),
        ("timestamptz", datetime(2026, 7, 19, 14, 0, 0, 5, tzinfo=UTC)),
    ],
)
async def test_a_value_is_read_as_what_it_was(conn: AsyncConnection[Any], kind: str, value: Any) -> None:
    sent = literal(value) if isinstance(value, list) else value
    assert await flush(conn, [call(f"select %(value)s::{kind}, 100 %% 7", {"value": sent})]) == [[(value, 2)]]


async def test_a_value_stands_wherever_its_name_does(conn: AsyncConnection[Any]) -> None:
    text = "select %(a)s::text || %(b)s::text || %(a)s::text"
    assert await flush(conn, [call(text, {"b": "2", "a": "1", "more": "x"})]) == [[("121",)]]


async def test_statements_are_prepared_once_a_connection(conn: AsyncConnection[Any], log_database: str) -> None:
    for _ in range(3):
        await commit(conn, [(ECHO, {"value": "x"}), (ECHO, {"value": "y"})])
    names = await (
        await conn.execute("select name from pg_prepared_statements where statement like '-- Says%%'")
    ).fetchall()
    assert len(names) == 1
    async with await connect(log_database, "other") as other:
        assert await commit(other, [(ECHO, {"value": "z"})]) == [[("z",)]]


async def test_much_goes_both_ways_at_once(conn: AsyncConnection[Any]) -> None:
    """More than the sockets hold: each side reads while the other writes."""
    texts = [str(n) * MEGABYTES for n in range(3)]
    assert await flush(conn, [call(ECHO, {"value": text}) for text in texts]) == [[(text,)] for text in texts]


async def test_an_error_undoes_the_batch_and_the_connection_goes_on(conn: AsyncConnection[Any]) -> None:
    await conn.execute("create temporary table kept (n integer)")
    insert = ("insert into pg_temp.kept values (%(n)s)", {"n": 1})
    with pytest.raises(Broken, match="22012"):
        await commit(conn, [insert, ("select 1 / %(n)s::integer", {"n": 0}), insert])
    assert conn.info.transaction_status is TransactionStatus.IDLE
    assert await commit(conn, [insert, ("select count(*) from pg_temp.kept", {})]) == [[], [(1,)]]


async def test_statements_that_a_rollback_of_the_driver_forgot_are_prepared_anew(conn: AsyncConnection[Any]) -> None:
    await conn.execute("create temporary table kept (n integer)")
    batch = [("insert into pg_temp.kept values (%(n)s)", {"n": 1}), (ECHO, {"value": "x"})]
    await commit(conn, batch)
    for _ in range(3):
        await forget_by_rollback(conn)
        assert await flush(conn, [call(ECHO, {"value": "y"})]) == [[("y",)]]
        await forget_by_rollback(conn)
        assert await commit(conn, [*batch, ("select count(*) from pg_temp.kept where %(n)s::int > 0", {"n": 1})])
    assert await commit(conn, [("select count(*) from pg_temp.kept", {})]) == [[(4,)]]


async def test_statements_that_are_forgotten_inside_a_transaction_undo_it(conn: AsyncConnection[Any]) -> None:
    """Half of the transaction lies before this flush: it is not for the flush to begin it anew."""
    await flush(conn, [call(ECHO, {"value": "x"})])
    await forget_by_rollback(conn)
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        async with conn.transaction():
            await flush(conn, [call(ECHO, {"value": "x"})])
    assert await flush(conn, [call(ECHO, {"value": "y"})]) == [[("y",)]]


async def test_a_statement_that_cannot_be_prepared_is_tried_anew(conn: AsyncConnection[Any]) -> None:
    batch = [("select n from pg_temp.later", {})]
    with pytest.raises(Broken, match="42P01"):
        await commit(conn, batch)
    await conn.execute("create temporary table later (n integer)")
    assert await commit(conn, batch) == [[]]


async def test_who_is_cancelled_leaves_a_connection_that_goes_on(conn: AsyncConnection[Any], log_database: str) -> None:
    sleeping = asyncio.ensure_future(flush(conn, [call(SLEEP, {})]))
    await is_asleep(log_database, conn)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert await flush(conn, [call(ECHO, {"value": "x"})]) == [[("x",)]]


async def test_an_end_of_the_connection_is_told_as_such(conn: AsyncConnection[Any], log_database: str) -> None:
    sleeping = asyncio.ensure_future(commit(conn, [(SLEEP, {})]))
    await is_asleep(log_database, conn)
    cut(conn)
    with pytest.raises(ConnectionLostError):
        await sleeping
    with pytest.raises(ConnectionLostError):
        await commit(conn, [(ECHO, {"value": "x"})])


async def test_the_server_s_last_word_is_the_answer(conn: AsyncConnection[Any], log_database: str) -> None:
    sleeping = asyncio.ensure_future(flush(conn, [call(SLEEP, {})]))
    await is_asleep(log_database, conn)
    async with await psycopg.AsyncConnection.connect(log_database, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(psycopg.errors.AdminShutdown):
        await sleeping
    assert conn.closed


def test_a_nul_is_refused_where_the_wire_would_end_the_text_at_it() -> None:
    with pytest.raises(Broken):
        call(ECHO, {"value": "a\0b"})
    with pytest.raises(UnicodeEncodeError):
        call(ECHO, {"value": "\ud800"})
    with pytest.raises(psycopg.ProgrammingError):
        call(ECHO, {"value": {}})
