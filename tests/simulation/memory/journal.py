"""The executor's journal in memory: sessions, fences, and finding out what became of a broken commit."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from processors.adapters.postgres.clock import DatabaseClock
from processors.ports.journal import Batch, Claim, LateAttempt, Mail, Release, SessionOver
from schemas.errors import Broken, Unavailable
from schemas.records import Record
from tests.simulation.memory.batch import apply_batch
from tests.simulation.memory.database import Connection, ConnectionLost, Database
from tests.simulation.memory.scheduling import claim_of, regranted
from tests.simulation.memory.tables import Session, Tables

Answer = TypeVar("Answer")
RECONNECT_SECONDS = 0.2
RENEW_SHARE = 1 / 6


class MemoryJournal:
    """Implements `Journal`. `lease` is in seconds."""

    def __init__(self, database: Database, owner: str, lease: float) -> None:
        self._database = database
        self._owner = owner
        self._lease = lease
        self._clock = DatabaseClock()
        self._connection: Connection | None = None
        self._session, self._epoch, self._batch = 0, 0, 0
        self._lease_ends = 0.0

    def now(self) -> datetime:
        return self._clock.now()

    @property
    def lease_ends(self) -> float:
        return self._lease_ends

    @property
    def renew_at(self) -> float:
        return self._lease_ends - self._lease * (1 - RENEW_SHARE)

    async def open(self) -> None:
        await self.aclose()
        self._connection = await self._database.connect()
        sent = time.monotonic()
        try:
            session, now = await self._database.run(self._connection, self._open_session)
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres gave no session: {exc}") from exc
        self._clock.observe(now)
        self._session, self._epoch, self._batch = session.session_id, session.epoch, 0
        self._lease_ends = sent + self._lease

    def _open_session(self, tables: Tables, xid: int) -> tuple[Session, datetime]:
        now = self._database.now()
        self._forgive(tables)
        holder, until = self._connected().process, now + timedelta(seconds=self._lease)
        session = Session(tables.next_id(), self._owner, holder, until)
        tables.sessions[session.session_id] = session
        tables.watcher.opened(session)
        return session, now

    def _forgive(self, tables: Tables) -> None:
        """The session before is over, and its process is alive to say so."""
        before = tables.sessions.get(self._session)
        if before is None:
            return
        before.muted = True
        if before.alive:
            before.given_up = True
            return
        for live in tables.live.values():
            if live.lost_session == before.session_id and live.crashes:
                live.crashes, live.lost_session = live.crashes - 1, None

    async def give_up(self) -> None:
        try:
            await self._database.run(await self._database.connect(), lambda tables, _: self._forgive(tables))
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"the session was not given up: {exc}") from exc

    async def commit(self, batch: Batch) -> Sequence[Claim]:
        while True:
            sent = time.monotonic()
            try:
                work = partial(self._apply, batch=batch, fence=self._fence)
                claims, now = await self._database.run(self._connected(), work)
            except ConnectionLost:
                if await self._resume():
                    return await self._ask(lambda tables: _owned(tables, self._session))
            except ValueError as exc:
                raise Broken("E_INTERNAL", f"a batch was refused: {exc}") from exc
            else:
                self._batch += 1
                self._lease_ends = sent + self._lease
                if claims:
                    self._clock.observe(now)
                return claims

    @property
    def _fence(self) -> tuple[int, int]:
        """As it is when a batch is sent: what arrives late must not borrow a newer one."""
        return self._session, self._epoch

    def _apply(self, tables: Tables, xid: int, batch: Batch, fence: tuple[int, int]) -> tuple[list[Claim], datetime]:
        session, now = self.hold(tables, fence), self._database.now()
        return apply_batch(tables, xid, session, batch, now), now

    def hold(self, tables: Tables, fence: tuple[int, int]) -> Session:
        """The fence, and the renewal of the lease."""
        session = tables.sessions.get(fence[0])
        if session is None or not session.alive or session.epoch != fence[1]:
            raise SessionOver(f"session {fence[0]} epoch {fence[1]} is over")
        session.batch += 1
        session.lease_until = self._database.now() + timedelta(seconds=self._lease)
        return session

    async def histories(self, run_ids: Sequence[str]) -> dict[str, list[Record]]:
        return await self._ask(
            lambda tables: {run_id: sorted(tables.logs.get(run_id, []), key=lambda one: one.seq) for run_id in run_ids}
        )

    async def unread_mail(self) -> Sequence[Mail]:
        return await self._ask(lambda tables: _unread(tables, self._session))

    async def keep_late(self, late: Sequence[LateAttempt]) -> None:
        if not late:
            return
        try:
            await self._database.run(self._connected(), lambda tables, _: tables.late.extend(late))
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"{len(late)} late results were not kept: {exc}") from exc

    async def release(self, runs: Sequence[Release]) -> None:
        try:
            await self._database.run(self._connected(), partial(self._release, runs=runs, fence=self._fence))
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"the runs were not given back: {exc}") from exc

    def _release(self, tables: Tables, xid: int, runs: Sequence[Release], fence: tuple[int, int]) -> None:
        session, now = self.hold(tables, fence), self._database.now()
        for one in runs:
            live = tables.live.get(one.run_id)
            if live is not None and live.session == session.session_id:
                live.owner_lost = one.in_flight
                regranted(tables, live, now)
        session.alive = False
        tables.watcher.closed(session)

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("the journal is not open")
        return self._connection

    async def _ask(self, work: Callable[[Tables], Answer]) -> Answer:
        while True:
            try:
                return await self._database.read(self._connected(), work)
            except ConnectionLost:
                await self._resume()

    async def _resume(self) -> bool:
        """Back on a new connection, in a new epoch, or `SessionOver`. Says whether the last batch was committed."""
        while time.monotonic() < self._lease_ends:
            try:
                await self.aclose()
                self._connection = await self._database.connect()
                sent = time.monotonic()
                found = await self._database.run(self._connection, self._next_epoch)
            except (ConnectionLost, Unavailable):
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            if found is None:
                break
            before, (self._epoch, self._batch) = self._batch, found
            self._lease_ends = sent + self._lease
            return self._batch > before
        raise SessionOver(f"session {self._session} could not be renewed in time")

    def _next_epoch(self, tables: Tables, xid: int) -> tuple[int, int] | None:
        session = tables.sessions[self._session]
        if not session.alive:
            return None
        session.epoch += 1
        session.lease_until = self._database.now() + timedelta(seconds=self._lease)
        return session.epoch, session.batch


def _owned(tables: Tables, session: int) -> list[Claim]:
    return [claim_of(tables, live) for live in tables.owned_by(session)]


def _unread(tables: Tables, session: int) -> list[Mail]:
    holders = {live.run.run_id for live in tables.owned_by(session) if live.has_mail}
    return [mail for _, mail in sorted(tables.mail.items()) if mail.run_id in holders]
