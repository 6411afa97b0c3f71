"""The scheduler's side of the log. Each action is a transaction of its own, in the one lock order."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.batches import ConnectionLostError, Statement, commit
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.grants import grant_overdue, grant_ready, granted, lock_queues
from processors.adapters.postgres.letters_waiting import LettersWaiting
from processors.adapters.postgres.partitions import keep_partitions
from processors.adapters.postgres.statements import statements
from processors.ports.measures import Measures
from processors.ports.runs import Grant
from processors.ports.schedule import Outlook, Silent
from schemas.errors import Unavailable
from schemas.stored_bodies import Reference

_log = structlog.get_logger("schedule")
MOST = 1000
SWEEP_SECONDS = 10.0  # a table and an upkeep
# After a start of Postgres or of this connection executors are still on their way back: nothing is known of them.
GRACE_SECONDS = 3.0
_SWEEPS = ("sweep_keys", "sweep_inbox", "sweep_lanes", "sweep_sessions", "sweep_misses", "sweep_mail")


class PostgresSchedule:
    """`outbox_days` is how long what was sent is kept."""

    def __init__(self, dsn: str, measures: Measures | None = None, *, outbox_days: int = 7) -> None:
        self._dsn = dsn
        self._outbox_days = outbox_days
        self._measures = measures or Measures()
        self._conn: AsyncConnection[TupleRow] | None = None
        self._connected_at = 0.0
        self._letters = LettersWaiting(self._measures)

    async def aclose(self) -> None:
        if self._conn is not None:
            await self._conn.close()

    async def look(self) -> Outlook:
        timers, late, hungry, due, sessions, batches, redrives = (await self._ask("look", {"grace": GRACE_SECONDS}))[0]
        is_settled = time.monotonic() - self._connected_at > GRACE_SECONDS
        silent = [Silent(*one) for one in zip(sessions, batches, strict=True)] if is_settled else []
        return Outlook(timers, late, hungry, due, silent, redrives)

    async def wake_due(self) -> int:
        return len(await self._ask("wake", {"most": MOST}))

    async def reap(self, dead: Sequence[Silent] = ()) -> Sequence[Grant]:
        sql, most = statements("scheduler"), {"most": MOST}
        named = {"dead": [one.session_id for one in dead], "batches": [one.batch for one in dead]}
        grants: list[Grant] = []
        while True:
            closed, rows = await self._commit([(sql["close_dead_sessions"], named), (sql["regrant"], most)])
            for session, owner, noticed_by in closed:
                _log.warning("session_closed", session=session, owner=owner, noticed_by=noticed_by)
                self._measures.count("sessions_closed_total", 1, noticed_by)
            grants += granted([(run_id, fence, lane) for run_id, fence, lane in rows])
            if len(rows) < MOST:
                return grants

    async def feed(self) -> Sequence[Grant]:
        hungry = await self._ask("hungry_queues")
        if not hungry:
            return []
        projects, queues = [row[0] for row in hungry], [row[1] for row in hungry]
        batch = [*lock_queues(projects, queues), grant_overdue(projects, queues), grant_ready(projects, queues)]
        results = await self._commit(batch)
        return granted([(run_id, fence, lane) for run_id, fence, lane in (*results[-2], *results[-1])])

    async def recount(self) -> None:
        sql = statements("grants")
        for project, queue in await self._ask("all_queues"):
            one = {"project": project, "queue": queue}
            await self._commit([*lock_queues([project], [queue]), (sql["recount"], one)])

    async def kept_bodies(self, references: Sequence[Reference]) -> Collection[Reference]:
        """On a connection of its own, as all upkeep."""
        by_name = {str(reference): reference for reference in references}
        conn = await connect(self._dsn, "upkeep")
        try:
            cursor = await conn.execute(statements("scheduler")["find_kept_bodies"], {"references": list(by_name)})
            return [by_name[name] for (name,) in await cursor.fetchall()]
        except psycopg.Error as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres cannot tell whose the stored bodies are: {exc}") from exc
        finally:
            await conn.close()

    async def sweep(self) -> None:
        """On connections of its own: it takes as long as it takes, and no look waits for it."""
        conn = await connect(self._dsn, "upkeep")
        try:
            for name in _SWEEPS:
                try:
                    await _sweep(conn, name)
                except psycopg.Error as exc:
                    _log.warning("sweep_failed", part=name, reason=str(exc).strip())
            await self._tell_of_snapshots(conn)
            await self._letters.tell(conn)
        finally:
            await conn.close()
        await keep_partitions(self._dsn, self._outbox_days, self._measures)

    async def _tell_of_snapshots(self, conn: AsyncConnection[TupleRow]) -> None:
        try:
            cursor = await conn.execute(statements("scheduler")["oldest_snapshot"])
            self._measures.set("oldest_snapshot_age_seconds", (await cursor.fetchall())[0][0])
        except psycopg.Error as exc:
            _log.warning("sweep_failed", part="oldest_snapshot", reason=str(exc).strip())

    async def _connection(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._dsn, "scheduler")
            self._connected_at = time.monotonic()
        return self._conn

    async def _ask(self, name: str, params: Mapping[str, Any] | None = None) -> list[TupleRow]:
        conn = await self._connection()
        try:
            cursor = await conn.execute(statements("scheduler")[name], params)
            return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as exc:
            raise await self._away(name, exc) from exc

    async def _away(self, name: str, exc: psycopg.Error) -> Unavailable:
        if self._conn is not None:
            await self._conn.close()
        return Unavailable("E_UNAVAILABLE", f"Postgres did not answer {name}: {str(exc).strip()}")

    async def _commit(self, batch: Sequence[Statement]) -> list[list[TupleRow]]:
        try:
            return await commit(await self._connection(), batch)
        except ConnectionLostError as exc:
            raise Unavailable("E_UNAVAILABLE", f"the connection to Postgres broke: {exc}") from exc


async def _sweep(conn: AsyncConnection[TupleRow], name: str) -> None:
    """Bounded deletes until nothing is left or the time is over."""
    until = time.monotonic() + SWEEP_SECONDS
    while (await conn.execute(statements("scheduler")[name], {"most": MOST})).rowcount >= MOST:
        if time.monotonic() >= until:
            _log.warning("sweep_goes_on_later", part=name, seconds=SWEEP_SECONDS)
            return
