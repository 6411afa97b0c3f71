"""The scheduler's side of the log in memory."""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from processors.ports.runs import Grant
from processors.ports.schedule import Outlook, Silent
from schemas.errors import Unavailable
from schemas.stored_bodies import Reference
from tests.simulation.memory.database import Connection, ConnectionLost, Database
from tests.simulation.memory.scheduling import grant_ready, is_overdue, regranted
from tests.simulation.memory.tables import LiveRun, Session, Tables

Answer = TypeVar("Answer")
MOST = 1000
GRACE_SECONDS = 3.0
KEEP_KEYS, KEEP_INBOX, KEEP_SESSIONS = timedelta(days=1), timedelta(days=8), timedelta(days=1)


class MemorySchedule:
    """Implements `Schedule`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._connected_at = 0.0

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def look(self) -> Outlook:
        connection = await self._connected()
        try:
            return await self._database.read(connection, self._look)
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres did not answer: {exc}") from exc

    def _look(self, tables: Tables) -> Outlook:
        now = self._database.now()
        dues = [live.visible_at for live in tables.live.values() if live.visible_at is not None]
        ready = [live for live in tables.live.values() if live.state == "pending" and live.ready]
        ends = [live.deadline_at for live in ready if live.deadline_at is not None]
        since = max(self._connected_at, self._database.started_at)
        is_settled = time.monotonic() - since > GRACE_SECONDS
        return Outlook(
            timers_due=any(due <= now for due in dues),
            sessions_late=any(one.alive and self._is_late(one) for one in tables.sessions.values()),
            runs_hungry=any(is_overdue(live, now) or _has_room(tables, live.queue) for live in ready),
            next_due=(min(dues + ends) - now).total_seconds() if dues or ends else None,
            silent=[Silent(one.session_id, one.batch) for one in _silent(tables)] if is_settled else [],
        )

    def _is_late(self, session: Session) -> bool:
        return session.given_up or session.lease_until < self._database.now()

    async def wake_due(self) -> int:
        return await self._run(lambda tables, _: self._wake(tables))

    def _wake(self, tables: Tables) -> int:
        now = self._database.now()
        due = [live for live in tables.live.values() if live.visible_at is not None and live.visible_at <= now]
        due = [live for live in due if live.session is None][:MOST]
        for live in due:
            live.state, live.ready, live.grant_class, live.visible_at = "pending", True, 0, None
        return len(due)

    async def reap(self, dead: Sequence[Silent] = ()) -> Sequence[Grant]:
        return await self._run(lambda tables, _: self._reap(tables, dead))

    def _reap(self, tables: Tables, dead: Sequence[Silent]) -> list[Grant]:
        for session in tables.sessions.values():
            is_gone = session.is_silent and Silent(session.session_id, session.batch) in dead
            if session.alive and (self._is_late(session) or is_gone):
                session.alive = False
                tables.watcher.closed(session)
        return [self._regrant(tables, live) for live in self.orphans(tables)]

    def orphans(self, tables: Tables) -> list[LiveRun]:
        """The runs of sessions that are over."""
        over = {one.session_id for one in tables.sessions.values() if not one.alive}
        return [live for live in tables.live.values() if live.session in over]

    def _regrant(self, tables: Tables, live: LiveRun) -> Grant:
        session = tables.sessions[live.session or 0]
        live.owner_lost, live.lost_session = True, live.session
        live.crashes += 0 if session.given_up else 1
        return regranted(tables, live, self._database.now())

    async def feed(self) -> Sequence[Grant]:
        return await self._run(lambda tables, _: self._feed(tables))

    def _feed(self, tables: Tables) -> list[Grant]:
        now = self._database.now()
        ready = [live for live in tables.live.values() if live.state == "pending" and live.ready]
        hungry = sorted({live.queue for live in ready if is_overdue(live, now) or _has_room(tables, live.queue)})
        tables.fold(hungry)
        overdue = [live for live in ready if is_overdue(live, now)]
        for live in overdue:
            tables.queues[live.queue].running += 1
        return [regranted(tables, live, now) for live in overdue] + grant_ready(tables, hungry, now)

    async def recount(self) -> None:
        await self._run(lambda tables, _: _recount(tables))

    async def kept_bodies(self, references: Sequence[Reference]) -> Collection[Reference]:
        return await self._run(lambda tables, _: [one for one in references if str(one) in tables.stored_bodies])

    async def sweep(self) -> None:
        await self._run(lambda tables, _: self._sweep(tables))

    def _sweep(self, tables: Tables) -> None:
        now = self._database.now()
        for key, row in list(tables.keys.items()):
            if row.expires_at < now - KEEP_KEYS:
                del tables.keys[key]
        for lane_id, lane in list(tables.lanes.items()):
            if lane.head == lane.tail:
                del tables.lanes[lane_id]
        for number, session in list(tables.sessions.items()):
            if not session.alive and session.lease_until < now - KEEP_SESSIONS and not tables.owned_by(number):
                del tables.sessions[number]
        for mail_id, mail in list(tables.mail.items()):
            if mail.run_id not in tables.live:
                del tables.mail[mail_id]

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._database.connect()
            self._connected_at = time.monotonic()
        return self._connection

    async def _run(self, work: Callable[[Tables, int], Answer]) -> Answer:
        connection = await self._connected()
        try:
            return await self._database.run(connection, work)
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"the connection to Postgres broke: {exc}") from exc


def _silent(tables: Tables) -> list[Session]:
    return [session for session in tables.sessions.values() if session.alive and session.is_silent]


def _has_room(tables: Tables, queue: tuple[str, str]) -> bool:
    row = tables.queues[queue]
    return row.running + row.deltas < row.limit


def _recount(tables: Tables) -> None:
    for queue, row in tables.queues.items():
        row.running = sum(live.holds_slot for live in tables.live.values() if live.queue == queue)
        row.deltas = 0
