"""The relay's store in Postgres: one connection for the looks in order, one that listens.

Each statement is a transaction of its own: `pg_stat_activity` is frozen inside one, and the horizon
is right only if its looks have separate snapshots.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from processors.adapters.postgres.batches import ConnectionLostError, commit
from processors.adapters.postgres.columns import columns
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from processors.adapters.postgres.wakeups import Channel, listen
from processors.ports.measures import Measures
from processors.ports.relay import Cursor, Hold, OutboxRow, Outlook, Progress, Topic, Unread
from schemas.errors import Refused, Unavailable

_log = structlog.get_logger("relay")
# Half of it is what a broker may take to answer a batch: a busy one, to a producer that is new, takes seconds.
LEASE_SECONDS: Final = 10.0
MOST_CHECKPOINTS: Final = 32
_KEEPALIVE: Final = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}


class PostgresRelayStore:
    """Implements `processors.ports.relay.RelayStore`; opened by `open_relay_store`."""

    def __init__(self, dsn: str, shard: int, lease: float) -> None:
        self.dsn = make_conninfo(dsn, **_KEEPALIVE)
        self._shard = shard
        self._lease = lease
        self._sql = statements("relay")
        self._conn: AsyncConnection[TupleRow] | None = None
        self._wake = asyncio.Event()

    @property
    def lease(self) -> float:
        return self._lease

    async def take(self, owner: str) -> Hold | None:
        row = await self._row("take_shard", {"owner": owner, "lease": self._lease})
        if row is None:
            return None
        epoch, is_restored = row
        if is_restored:
            await self._stamp_again(epoch)
        return await self.renew(epoch)

    async def renew(self, epoch: int) -> Hold | None:
        asked = {"epoch": epoch, "lease": self._lease, "most_checkpoints": MOST_CHECKPOINTS}
        row = await self._row("renew_shard", asked)
        if row is None:
            return None
        held_in, xid, last, asked_for, held, *outlook = row
        return Hold(held_in, Cursor(xid, last), frozenset(asked_for), frozenset(held), Outlook(*outlook))

    async def waits(self, cursor: Cursor) -> bool:
        return bool(await self._number("waits", {"xid": cursor.xid, "id": cursor.id}))

    async def upper(self) -> int:
        return await self._number("upper_bound", {})

    async def horizon(self, upper: int) -> int:
        return await self._number("horizon", {"upper": upper})

    async def rows(self, cursor: Cursor, horizon: int, limit: int) -> list[OutboxRow]:
        asked = {"xid": cursor.xid, "id": cursor.id, "horizon": horizon, "limit": limit}
        return [OutboxRow(*row) for row in await self._rows("next_rows", asked)]

    async def seal_key(self) -> bytes:
        ((key,),) = await self._rows("seal_key", {})
        return bytes(key)

    async def numbers(self) -> dict[tuple[str, int], int]:
        return {(topic, partition): seq for topic, partition, seq in await self._rows("numbers", {})}

    async def topics(self) -> dict[str, Topic]:
        return {name: Topic(*told) for name, *told in await self._rows("topics", {})}

    async def is_read_up(self, topic: str) -> bool:
        return bool(await self._number("is_read_up", {"topic": topic}))

    async def unread(self) -> dict[tuple[str, int], Unread]:
        return {(topic, partition): Unread(*told) for topic, partition, *told in await self._rows("unread", {})}

    async def go_back(self, epoch: int, topics: Collection[str]) -> bool:
        return await self._number("go_back", {"epoch": epoch, "topics": sorted(topics)}) == 1

    async def advance(self, epoch: int, progress: Progress) -> bool:
        asked = {
            "epoch": epoch,
            "lease": self._lease,
            "xid": progress.cursor.xid,
            "id": progress.cursor.id,
            "topics": [topic for topic, _ in progress.numbers],
            "partitions": [partition for _, partition in progress.numbers],
            "seqs": list(progress.numbers.values()),
            "used": list(progress.topics),
            "used_ids": [topic.topic_id for topic in progress.topics.values()],
            "used_partitions": [topic.partitions for topic in progress.topics.values()],
            **columns(progress.dead, ("dead_letter_id", "error_code", "summary")),
            "raw": [dead.row.value for dead in progress.dead],
            "dead_topic": [dead.row.topic for dead in progress.dead],
        }
        return await self._number("advance", asked) == 1

    async def release(self, epoch: int) -> None:
        await self._execute("release_shard", {"epoch": epoch})

    async def wait_for_wake(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def wake(self) -> None:
        self._wake.set()

    async def aclose(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _stamp_again(self, epoch: int) -> None:
        """What was written in the cluster that this database comes from is put before all that is written now."""
        _log.warning("relay_stamps_again", reason="the database was restored from another cluster")
        asked = {"shard": self._shard, "epoch": epoch, "lease": self._lease}
        try:
            await commit(
                await self._connection(),
                [(self._sql["wait_as_long_as_it_takes"], {}), (self._sql["stamp_again"], asked)],
            )
        except ConnectionLostError as exc:
            raise Unavailable("E_UNAVAILABLE", f"the connection broke while rows were stamped again: {exc}") from exc
        await self.aclose()  # the next connection checks that it sees the transactions of the writing role

    async def _number(self, name: str, asked: Mapping[str, Any]) -> int:
        row = await self._row(name, asked)
        if row is None:
            raise LookupError(name)
        return int(row[0])

    async def _row(self, name: str, asked: Mapping[str, Any]) -> TupleRow | None:
        rows = await self._rows(name, asked)
        return rows[0] if rows else None

    async def _rows(self, name: str, asked: Mapping[str, Any]) -> list[TupleRow]:
        return await (await self._execute(name, asked)).fetchall()

    async def _execute(self, name: str, asked: Mapping[str, Any]) -> psycopg.AsyncCursor[TupleRow]:
        try:
            conn = await self._connection()
            cursor = conn.cursor(binary=True)
            return await cursor.execute(self._sql[name], {"shard": self._shard, **asked})
        except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
            await self.aclose()
            raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer the relay: {str(exc).strip()}") from exc

    async def _connection(self) -> AsyncConnection[TupleRow]:
        if self._conn is None:
            conn = await connect(self.dsn, "relay")
            try:
                await self._check_sight(conn)
                await conn.execute(self._sql["prefer_order"])
            except BaseException:
                await conn.close()
                raise
            self._conn = conn
        return self._conn

    async def _check_sight(self, conn: AsyncConnection[TupleRow]) -> None:
        row = await (await conn.execute(self._sql["may_see_writers"])).fetchone()
        if row is None or not row[2]:
            user, writer = row[:2] if row else ("this role", "the writing role (dropped)")
            raise Refused(
                "E_CONFIG",
                f"the relay is connected as {user}, which does not see the open transactions of {writer} "
                f"and would skip their rows; connect as {writer}, or grant pg_read_all_stats",
            )


@asynccontextmanager
async def open_relay_store(
    dsn: str, *, shard: int = 0, lease: float = LEASE_SECONDS, measures: Measures | None = None
) -> AsyncIterator[PostgresRelayStore]:
    """A store with its listener running. Connects when first asked; `lease` is in seconds."""
    store = PostgresRelayStore(dsn, shard, lease)
    stop = asyncio.Event()
    listener = asyncio.create_task(listen(store.dsn, {Channel.OUTBOX: store.wake}, stop, measures))
    try:
        yield store
    finally:
        stop.set()
        await listener
        await store.aclose()


async def rewind_relay(dsn: str, shard: int = 0) -> None:
    """Publish the outbox of the last days again. For a broker that begins empty, before a relay starts."""
    conn = await connect(dsn, "rewind")
    async with conn:
        await conn.execute(statements("relay")["go_back"], {"shard": shard, "epoch": None, "topics": None})
