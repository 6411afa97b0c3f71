"""Wake-ups between processes by NOTIFY: hints that save a poll, never the only way.

Sending is coalesced on a connection of its own (a NOTIFY inside the commits would cost up to a third of
small batches). Listening proves after some seconds of silence that the connection still reaches a session that
listens, and after a reconnect wakes once for whatever it may have missed.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.connections import connect, cut
from processors.adapters.postgres.flush import call, flush
from processors.adapters.postgres.statements import statements
from processors.ports.measures import Measures
from schemas.errors import AutomationError, Unavailable

_log = structlog.get_logger("wakeups")
PROOF_SECONDS = 5.0
ANSWER_SECONDS = 3.0
RETRY_SECONDS = 0.5


class Channel(StrEnum):
    OUTBOX = "a44_outbox"
    GRANTED = "a44_granted"
    MAIL = "a44_mail"
    PENDING = "a44_pending"
    ENDED = "a44_ended"


class Notifier:
    """`wake` returns at once; channels that gather while a NOTIFY is under way go out together."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._due: set[Channel] = set()
        self._sending: asyncio.Task[None] | None = None
        self._conn: AsyncConnection[TupleRow] | None = None

    def wake(self, channel: Channel) -> None:
        self._due.add(channel)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def aclose(self) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=2)
        if self._conn is not None:
            await self._conn.close()

    async def _send(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, set()
                try:
                    await self._notify(due)
                except psycopg.OperationalError:  # a connection from before a restart: the next one is told
                    await self._notify(due)
        except (psycopg.Error, AutomationError) as exc:
            _log.info("notify_lost", reason=str(exc))
        finally:
            self._sending = None

    async def _notify(self, due: set[Channel]) -> None:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._dsn, "notify")
        try:
            sql = statements("wakeups")["notify"]
            await flush(self._conn, [call(sql, {"channel": channel.value}) for channel in due])
        except psycopg.OperationalError:
            await self._conn.close()  # a broken pipeline may leave it looking open
            raise


async def listen(
    dsn: str, channels: Mapping[Channel, Callable[[], None]], stop: asyncio.Event, measures: Measures | None = None
) -> None:
    """Call back on each wake-up until `stop`; reconnects for ever, and calls all back after each reconnect."""
    told = measures or Measures()
    while not stop.is_set():
        try:
            conn = await connect(dsn, "listen")
            async with conn:
                for channel in channels:
                    await conn.execute(statements("wakeups")[f"listen_{channel.value.removeprefix('a44_')}"])
                for callback in channels.values():
                    callback()
                await _hear(conn, channels, stop, told)
        except (psycopg.Error, AutomationError) as exc:
            _log.warning("listen_lost", reason=str(exc))
            await wait_for_event(stop, RETRY_SECONDS)


async def _hear(
    conn: AsyncConnection[TupleRow],
    channels: Mapping[Channel, Callable[[], None]],
    stop: asyncio.Event,
    measures: Measures,
) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    noticed: set[str] = set()
    conn.add_notify_handler(lambda notice: noticed.add(notice.channel))  # what comes beside an answer
    try:
        while not stop.is_set():
            hearing = asyncio.ensure_future(_next_notices(conn, noticed))
            await asyncio.wait([hearing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                hearing.cancel()
                await asyncio.wait([hearing])
                return
            for channel in {Channel(name) for name in hearing.result()} & channels.keys():
                measures.count("wakeups_total", 1, "notify")
                channels[channel]()
            if not hearing.result():
                await _prove(conn, channels)
    finally:
        stopping.cancel()


async def _next_notices(conn: AsyncConnection[TupleRow], noticed: set[str]) -> set[str]:
    """Whatever came, or nothing for a while. The driver's own way would look for it ten times a second."""
    noticed |= _read_notices(conn)
    if not noticed and await _is_readable(conn):
        conn.pgconn.consume_input()
        noticed |= _read_notices(conn)
    found = set(noticed)
    noticed.clear()
    return found


def _read_notices(conn: AsyncConnection[TupleRow]) -> set[str]:
    return {notice.relname.decode() for notice in iter(conn.pgconn.notifies, None)}


async def _is_readable(conn: AsyncConnection[TupleRow]) -> bool:
    """Wait until the server has sent something, at most for a while."""
    loop, readable, wire = asyncio.get_running_loop(), asyncio.Event(), conn.fileno()
    loop.add_reader(wire, readable.set)
    try:
        return await wait_for_event(readable, PROOF_SECONDS)
    finally:
        loop.remove_reader(wire)


async def _prove(conn: AsyncConnection[TupleRow], channels: Mapping[Channel, Callable[[], None]]) -> None:
    """Nothing was heard for a while. Raises where nothing could be: the other side is gone without a word, or a pooler
    has put another session behind this connection.
    """
    asking = asyncio.ensure_future(_heard_by(conn))
    await asyncio.wait([asking], timeout=ANSWER_SECONDS)
    if not asking.done():
        cut(conn)
    missing = set(channels) - await asking
    if missing:
        raise Unavailable(
            "E_UNAVAILABLE",
            f"the session behind this connection does not listen to {', '.join(sorted(missing))}: a pooler that shares "
            "connections stands before Postgres, and wake-ups come late; give the service a direct address",
        )


async def _heard_by(conn: AsyncConnection[TupleRow]) -> set[str]:
    return {row[0] for row in await (await conn.execute(statements("wakeups")["heard_channels"])).fetchall()}


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most so long; says whether it came."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
