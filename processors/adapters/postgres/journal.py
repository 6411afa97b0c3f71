"""The executor's journal on Postgres: a session, a fence, one flush a batch.

When the connection breaks after COMMIT was sent, the new connection first takes the session into its next
epoch: the row lock waits for whatever the old one still does, and the batch number then tells whether the
batch was committed. What the old connection sends later is fenced by the epoch.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres import journal_batch
from processors.adapters.postgres.batches import ConnectionLostError, SessionOverError, Statement, commit
from processors.adapters.postgres.clock import DatabaseClock
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.liveness import Liveness
from processors.adapters.postgres.statements import statements
from processors.ports.journal import Batch, Claim, LateAttempt, Mail, Release, SessionOver, UnreadableLog
from schemas.errors import Broken, Unavailable
from schemas.records import Record

_log = structlog.get_logger("journal")
RECONNECT_SECONDS = 0.2
RENEW_SHARE = 1 / 6
TRIES = 3


class PostgresJournal:
    """`lease` is in seconds. `owner` names the process to people. Dead letters are told on `dead_letters_topic`."""

    def __init__(self, dsn: str, owner: str, lease: float, dead_letters_topic: str) -> None:
        self._dsn = dsn
        self._dead_letters_topic = dead_letters_topic
        self._owner = owner
        self._lease = lease
        self._clock = DatabaseClock()
        self._conn: AsyncConnection[TupleRow] | None = None
        self._session, self._epoch, self._batch = 0, 0, 0
        self._lease_ends = 0.0
        self._liveness = Liveness(dsn, lease)

    def now(self) -> datetime:
        return self._clock.now()

    @property
    def renew_at(self) -> float:
        return self._lease_ends - self._lease * (1 - RENEW_SHARE)

    @property
    def lease_ends(self) -> float:
        return self._lease_ends

    async def open(self) -> None:
        await self._hang_up()
        conn = await connect(self._dsn, "executor")
        self._conn = conn
        sent = time.monotonic()
        try:
            await self._clock.sync(conn)
            if self._session:
                await self._give_up(conn)
            cursor = await conn.execute(
                statements("executor")["open_session"], {"owner": self._owner, "lease": self._lease}
            )
            row = await cursor.fetchone()
        except psycopg.Error as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres gave no session: {exc}") from exc
        if row is None:
            raise Unavailable("E_UNAVAILABLE", "Postgres gave no session")
        self._session, self._epoch, self._batch = row[0], row[1], 0
        self._lease_ends = sent + self._lease
        await self._liveness.hold(self._session)

    async def _give_up(self, conn: AsyncConnection[TupleRow]) -> None:
        """The session before: its runs are forgotten here, and this process is alive to say so."""
        sql, session = statements("executor"), {"session": self._session}
        row = await (await conn.execute(sql["give_up_session"], session)).fetchone()
        if row is not None and not row[0]:
            await conn.execute(sql["forgive_lost"], session)

    async def commit(self, batch: Batch) -> Sequence[Claim]:
        refusals = 0
        while True:
            sent = time.monotonic()
            fence = {"session": self._session, "epoch": self._epoch, "lease": self._lease}
            try:
                plan = journal_batch.plan(batch, fence, self._dead_letters_topic)
                results = await commit(self._connected(), plan.statements)
            except UnicodeEncodeError as exc:
                raise Broken("E_INTERNAL", "a batch holds text with half of a surrogate pair") from exc
            except SessionOverError as exc:
                raise SessionOver(str(exc)) from exc
            except Unavailable:
                refusals += 1
                if refusals == TRIES:
                    raise
            except ConnectionLostError as exc:
                _log.warning("connection_lost", reason=str(exc))
                if await self._resume():
                    return await self._owned()
            else:
                self._batch += 1
                self._lease_ends = sent + self._lease
                return plan.claims(results, self._clock.observe)

    async def histories(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Record] | UnreadableLog]:
        rows: dict[str, list[TupleRow]] = {run_id: [] for run_id in run_ids}
        for row in await self._ask("read_logs", {"runs": list(run_ids)}):
            rows[row[0]].append(row)
        return {run_id: journal_batch.log_of(log) for run_id, log in rows.items()}

    async def unread_mail(self) -> Sequence[Mail]:
        return [Mail(*row) for row in await self._ask("read_mail", {"session": self._session})]

    async def keep_late(self, late: Sequence[LateAttempt]) -> None:
        if not late:
            return
        try:
            await commit(self._connected(), [journal_batch.late_attempts(late)])
        except ConnectionLostError as exc:
            raise Unavailable("E_UNAVAILABLE", f"{len(late)} late results were not kept: {exc}") from exc

    async def release(self, runs: Sequence[Release]) -> None:
        sql = statements("executor")
        fence = {"session": self._session, "epoch": self._epoch, "lease": self._lease}
        given = {"run_id": [run.run_id for run in runs], "in_flight": [run.in_flight for run in runs], **fence}
        batch: list[Statement] = [
            (sql["hold_session"], fence),
            (sql["release_runs"], given),
            (sql["close_session"], fence),
        ]
        try:
            await commit(self._connected(), batch)
        except SessionOverError as exc:
            raise SessionOver(str(exc)) from exc
        except ConnectionLostError as exc:
            raise Unavailable("E_UNAVAILABLE", f"the runs were not given back, their lease will end: {exc}") from exc

    async def give_up(self) -> None:
        try:
            conn = await connect(self._dsn, "executor")
            async with conn:
                await self._give_up(conn)
        except psycopg.Error as exc:
            raise Unavailable("E_UNAVAILABLE", f"the session was not given up, its lease will end: {exc}") from exc

    async def aclose(self) -> None:
        await self._liveness.let_go()
        await self._hang_up()

    async def _hang_up(self) -> None:
        if self._conn is not None:
            await self._conn.close()

    def _connected(self) -> AsyncConnection[TupleRow]:
        if self._conn is None:
            raise RuntimeError("the journal is not open")
        return self._conn

    async def _ask(self, name: str, params: dict[str, object]) -> list[TupleRow]:
        while True:
            try:
                cursor = await self._connected().execute(statements("executor")[name], params)
                return await cursor.fetchall()
            except psycopg.Error as exc:
                if not self._connected().closed:
                    raise Unavailable("E_UNAVAILABLE", f"Postgres did not answer {name}: {exc}") from exc
                await self._resume()

    async def _resume(self) -> bool:
        """Back on a new connection, or `SessionOver`. Says whether the last batch had been committed."""
        while time.monotonic() < self._lease_ends:
            try:
                await self._hang_up()
                self._conn = await connect(self._dsn, "executor")
                sent = time.monotonic()
                cursor = await self._conn.execute(
                    statements("executor")["resume_session"], {"session": self._session, "lease": self._lease}
                )
                row = await cursor.fetchone()
            except (psycopg.Error, Unavailable) as exc:
                _log.info("reconnecting", reason=str(exc))
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            if row is None:
                break
            before, self._epoch, self._batch = self._batch, row[0], row[1]
            self._lease_ends = sent + self._lease
            return self._batch > before
        raise SessionOver(f"session {self._session} could not be renewed in time")

    async def _owned(self) -> Sequence[Claim]:
        """Everything that this session owns: the answer to a batch whose own answer was lost. The executor knows
        which of them it has already.
        """
        return [journal_batch.claim_of(row) for row in await self._ask("owned_runs", {"session": self._session})]
