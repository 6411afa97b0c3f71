"""Statements sent to the server in one go up to one Sync, in as few turns of the event loop as the socket allows.

The driver's own pipeline waits for the socket at every statement, which made up most of a small batch's cost. Here
each statement is prepared once a connection, its parameters travel as text whose type the server infers, or as an
array in the binary format, and its rows come back in the binary format.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

from processors.adapters.postgres.arrays import BytesArray
from schemas.errors import Broken

Call = tuple[str, Sequence[bytes | None], Sequence[Format]]
_WORD: Final = re.compile(r"[a-z]+", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"%\((\w+)\)s")


class _Prepared:
    """Names of a connection's prepared statements. A name is used once: what became of it may never be known."""

    def __init__(self) -> None:
        self.names: dict[str, bytes] = {}
        self._given = 0

    def new_name(self, text: str) -> bytes:
        """With the statement's first word, so that a `commit` is seen as one by whoever watches the wire."""
        self._given += 1
        return f"a44_{self._given}_{_WORD.findall(text)[0]}".encode()


_prepared: WeakKeyDictionary[AsyncConnection[TupleRow], _Prepared] = WeakKeyDictionary()


def call(text: str, params: Mapping[str, Any]) -> Call:
    """A statement with named parameters as it is sent. Raises `UnicodeEncodeError`, `Broken`, psycopg's errors."""
    numbered, names = _numbered(text)
    values = [_value(params[name]) for name in names]
    return numbered, [wire for wire, _ in values], [kind for _, kind in values]


async def flush(conn: AsyncConnection[TupleRow], calls: Sequence[Call]) -> list[list[TupleRow]]:
    """Run the calls up to one Sync; answer the rows of each. Raises the first error, as psycopg's own.

    A rollback of the driver's own, such as of `conn.transaction()`, forgets all prepared statements of the connection,
    ours too, and tells nobody. The batch has come to nothing then (a `commit` in it stands last) and is sent anew.
    """
    was_idle = conn.info.transaction_status is TransactionStatus.IDLE
    try:
        return await _flush_once(conn, calls)
    except InvalidSqlStatementName:
        _prepared[conn].names.clear()
        if not was_idle:
            raise
    if conn.info.transaction_status is not TransactionStatus.IDLE:
        await conn.execute("rollback", prepare=False)
    return await _flush_once(conn, calls)


async def _flush_once(conn: AsyncConnection[TupleRow], calls: Sequence[Call]) -> list[list[TupleRow]]:
    async with conn.lock:
        known = _prepared.setdefault(conn, _Prepared())
        new = {text: known.new_name(text) for text, *_ in calls if text not in known.names}
        results = await conn.wait(_flushed(conn.pgconn, list(_commands(conn.pgconn, calls, known.names, new))))
        for text, result in zip(new, results, strict=False):
            if result.status == ExecStatus.COMMAND_OK:
                known.names[text] = new[text]
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                raise error_from_result(result)
        if len(results) < len(new) + len(calls):
            raise psycopg.OperationalError("the connection broke while answers were read")
        return _rows(conn, results[len(new) :])


def _rows(conn: AsyncConnection[TupleRow], results: Sequence[PGresult]) -> list[list[TupleRow]]:
    loader, rows = Transformer(conn), list[list[TupleRow]]()
    for result in results:
        loader.set_pgresult(result, format=Format.BINARY)
        rows.append(loader.load_rows(0, result.ntuples, tuple))
    return rows


def _commands(
    pgconn: PGconn, calls: Sequence[Call], names: Mapping[str, bytes], new: Mapping[str, bytes]
) -> Iterator[Callable[[], None]]:
    """Everything that is to be sent; statements that the server does not know yet come first."""
    for text, name in new.items():
        yield partial(pgconn.send_prepare, name, text.encode())
    for text, values, kinds in calls:
        yield partial(pgconn.send_query_prepared, names.get(text) or new[text], values, kinds, Format.BINARY)


def _flushed(pgconn: PGconn, commands: Sequence[Callable[[], None]]) -> PQGen[list[PGresult]]:
    """Send all, then read until the answer to Sync; reads while it sends, so that neither side waits for the other.
    A connection that is left in the middle of this is of no more use.
    """
    is_through = False
    pgconn.enter_pipeline_mode()
    try:
        for send in commands:
            send()
        pgconn.pipeline_sync()
        while pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                pgconn.consume_input()
        results = yield from _answers(pgconn)
        is_through = True
    finally:
        if is_through and pgconn.status == ConnStatus.OK:
            pgconn.exit_pipeline_mode()
        else:
            pgconn.finish()
    return results


def _answers(pgconn: PGconn) -> PQGen[list[PGresult]]:
    """Where the server ended the connection its last word is the answer."""
    results = list[PGresult]()
    while True:
        try:
            while pgconn.is_busy():
                yield Wait.R
                pgconn.consume_input()
            result = pgconn.get_result()
        except psycopg.OperationalError:
            if any(one.status == ExecStatus.FATAL_ERROR for one in results):
                return results
            raise
        if result is None:
            if pgconn.status != ConnStatus.OK:
                return results
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)


@cache
def _numbered(text: str) -> tuple[str, list[str]]:
    """The text with `$1` for `%(name)s`, and the names in their order."""
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%"), names


def _value(value: Any) -> tuple[bytes | None, Format]:
    match value:
        case None:
            return None, Format.TEXT
        case str():
            wire = value.encode()
            if b"\0" in wire:
                raise Broken("E_INTERNAL", "a batch holds text with a NUL")
            return wire, Format.TEXT
        case BytesArray():
            return value.wire, Format.BINARY
        case bytes():
            return value, Format.BINARY
        case bool() | int() | float():
            return repr(value).encode(), Format.TEXT
        case datetime():
            return value.isoformat().encode(), Format.TEXT
    raise psycopg.ProgrammingError(f"no way to send a {type(value).__name__}")
