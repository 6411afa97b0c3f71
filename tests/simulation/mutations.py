"""Adapters and roles that break one rule each, to show that the simulation would notice."""

from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import structs

from processors.executor.effects import Waiting
from processors.executor.executor import Executor
from processors.ingest.ingest import Ingest
from processors.ingest.postponing import Source
from processors.ingest.reading import Read, Reader
from processors.ports.ingest import Committed, Harvest, event_of
from processors.ports.journal import Batch, Claim
from processors.ports.relay import Cursor, OutboxRow, Progress, Unread
from processors.ports.runs import Grant
from schemas.errors import Unavailable
from tests.simulation.memory.batch import apply_batch
from tests.simulation.memory.database import ConnectionLost
from tests.simulation.memory.ingest_log import MemoryIngestLog
from tests.simulation.memory.journal import MemoryJournal
from tests.simulation.memory.relay_store import MemoryRelayStore
from tests.simulation.memory.schedule import MemorySchedule
from tests.simulation.memory.scheduling import claim, regranted
from tests.simulation.memory.tables import LiveRun, Session, Tables


class FencelessJournal(MemoryJournal):
    def hold(self, tables: Tables, fence: tuple[int, int]) -> Session:
        return tables.sessions[fence[0]]


class GreedyJournal(MemoryJournal):
    def _apply(self, tables: Tables, xid: int, batch: Batch, fence: tuple[int, int]) -> tuple[list[Claim], datetime]:
        session, now = self.hold(tables, fence), self._database.now()
        claims = apply_batch(tables, xid, session, batch, now)
        others = [live for live in tables.live.values() if live.session not in {None, session.session_id}]
        return claims + [claim(tables, live, session, now) for live in others[:1] if batch.look_for_granted], now


class GuessingJournal(MemoryJournal):
    """After a broken connection it sends the batch again without asking what became of it, in the same epoch."""

    async def _resume(self) -> bool:
        await super()._resume()
        return False


class AgelessJournal(MemoryJournal):
    """Knows of no age of events."""

    def _apply(self, tables: Tables, xid: int, batch: Batch, fence: tuple[int, int]) -> tuple[list[Claim], datetime]:
        claims, now = super()._apply(tables, xid, batch, fence)
        return [structs.replace(one, stale_at=None) for one in claims], now


class RelayWithoutHorizon(MemoryRelayStore):
    async def horizon(self, upper: int) -> int:
        return upper


class BlindRelayStore(MemoryRelayStore):
    async def unread(self) -> dict[tuple[str, int], Unread]:
        return {}


class HastyRelayStore(MemoryRelayStore):
    """Keeps the cursor when it reads."""

    async def rows(self, cursor: Cursor, horizon: int, limit: int) -> list[OutboxRow]:
        rows = await super().rows(cursor, horizon, limit)
        if rows:
            await self.advance(self._database.tables.shard.epoch, Progress(Cursor(rows[-1].xid, rows[-1].id), {}))
        return rows


class HastyIngestLog(MemoryIngestLog):
    async def commit(self, harvest: Harvest) -> Committed:
        try:
            await self._database.run(await self._connected(), lambda tables, _: self.advance(tables, harvest))
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", "the offsets were not kept") from exc
        return await super().commit(harvest)


class ForgetfulIngestLog(MemoryIngestLog):
    def apply(self, tables: Tables, xid: int, harvest: Harvest) -> Committed:
        for one in harvest.arrivals:
            tables.inbox.pop(event_of(one), None)
        return super().apply(tables, xid, harvest)


class ForgettingIngestLog(MemoryIngestLog):
    """Moves its offsets past what is put off, and keeps no letter of it."""

    def apply(self, tables: Tables, xid: int, harvest: Harvest) -> Committed:
        return super().apply(tables, xid, replace(harvest, postponed=[]))


class PassingIngest(Ingest):
    """Puts off whatever cannot be read, as if it had been passed before."""

    def _decide(self, harvest: Harvest, reader: Reader, source: Source, read: Read) -> bool:
        return super()._decide(harvest, reader, structs.replace(source, tries=source.tries or 1), read)


class HastySchedule(MemorySchedule):
    """Takes half a lease for a whole one, and does not close the session."""

    def orphans(self, tables: Tables) -> list[LiveRun]:
        soon = self._database.now() + timedelta(seconds=3)
        late = {one.session_id for one in tables.sessions.values() if one.lease_until < soon}
        return [live for live in tables.live.values() if live.session in late]


class GenerousSchedule(MemorySchedule):
    def _feed(self, tables: Tables) -> list[Grant]:
        ready = [live for live in tables.live.values() if live.state == "pending" and live.ready]
        return [regranted(tables, live, self._database.now()) for live in ready]


class PushySchedule(MemorySchedule):
    def _feed(self, tables: Tables) -> list[Grant]:
        for live in tables.live.values():
            live.ready = True
        return super()._feed(tables)


class HastyExecutor(Executor):
    def _decide_all(self, batch: Batch, waiting: list[Waiting]) -> None:
        super()._decide_all(batch, waiting)
        self._act(waiting)
        waiting.clear()
