"""Ingest's side of the log in memory: everything that a poll became, and its offsets, in one transaction."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from processors.adapters.postgres.clock import DatabaseClock
from processors.ports.ingest import Arrival, Committed, DeadRecord, Followed, Harvest, Known, event_of
from schemas.errors import Unavailable
from tests.simulation.memory.database import Connection, ConnectionLost, Database
from tests.simulation.memory.scheduling import create_runs, grant_ready, queues_of
from tests.simulation.memory.tables import SEAL_KEY, Key, Progress, Tables

Answer = TypeVar("Answer")


class MemoryIngestLog:
    """Implements `IngestLog`. `window` is in seconds."""

    def __init__(self, database: Database, dead_letters_topic: str, window: float) -> None:
        self._database = database
        self._dead_letters_topic = dead_letters_topic
        self._window = window
        self._clock = DatabaseClock()
        self._connection: Connection | None = None
        self._topic_ids: dict[str, str] = {}
        self._followed: dict[str, dict[int, Followed]] = {}

    def now(self) -> datetime:
        return self._clock.now()

    def followed(self, topic: str) -> Mapping[int, Followed]:
        return self._followed.get(topic, {})

    def seal_key(self) -> bytes:
        return SEAL_KEY

    async def open(self) -> None:
        await self._connected()

    async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
        def told(tables: Tables) -> dict[int, Progress]:
            return {partition: replace(row) for (name, partition), row in tables.progress.items() if name == topic}

        known = await self._look(told)
        self._topic_ids[topic] = topic_id
        self._followed[topic] = {
            p: Followed(row.seq, row.seen if row.topic_id == topic_id else row.seq) for p, row in known.items()
        }
        return {p: known[p].next_offset for p in partitions if p in known and known[p].topic_id == topic_id}

    async def commit(self, harvest: Harvest) -> Committed:
        try:
            committed = await self._database.run(await self._connected(), partial(self.apply, harvest=harvest))
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"the connection to Postgres broke: {exc}") from exc
        followed = self._followed.setdefault(harvest.topic, {})
        followed.update((partition, reached.followed) for partition, reached in harvest.reached.items())
        return committed

    async def _look(self, work: Callable[[Tables], Answer]) -> Answer:
        connection = await self._connected()
        try:
            return await self._database.read(connection, work)
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", "Postgres tells ingest nothing") from exc

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._database.connect()
            try:
                self._clock.observe(await self._database.read(self._connection, lambda _: self._database.now()))
            except ConnectionLost as exc:
                raise Unavailable("E_UNAVAILABLE", "Postgres told no time") from exc
        return self._connection

    def apply(self, tables: Tables, xid: int, harvest: Harvest) -> Committed:
        now, queues = self._database.now(), queues_of(harvest.runs)
        tables.fold(queues)
        known = self._note_events(tables, xid, harvest, now)
        doors = {event_of(one): one.accepted_at for one in harvest.arrivals if one.accepted_at is not None}
        create_runs(tables, xid, harvest.runs, [doors.get(event_of(run)) for run in harvest.runs], now)
        grants = grant_ready(tables, queues, now)
        tables.misses |= {(one.project_id, one.trigger_id, one.event_id) for one in harvest.misses}
        buried = {
            dead.dead_letter_id
            for dead in harvest.dead
            if (dead.event_id is None or tables.inbox.get((dead.project_id or "", dead.event_id)) == xid)
            and self._bury(tables, xid, dead)
        }
        for letter in harvest.postponed:
            if letter.letter_id not in tables.postponed:
                tables.postponed.add(letter.letter_id)
                tables.announce(xid, letter.topic, letter.partition_key, letter.headers, letter.value)
        self.advance(tables, harvest)
        return Committed(grants, known, buried)

    def _note_events(self, tables: Tables, xid: int, harvest: Harvest, now: datetime) -> dict[int, Known]:
        """Direct records take their keys here; what came through a door has taken its key there."""
        runs = {event_of(run): run.run_id for run in reversed(harvest.runs)}
        for one in harvest.arrivals:
            key = (one.project_id, one.idempotency_key)
            if one.accepted_at is None:
                held = tables.keys.get(key)
                if held is None or held.expires_at <= now:
                    until = now + timedelta(seconds=tables.windows.get(one.project_id, self._window))
                    tables.keys[key] = Key(one.event_id, runs.get(event_of(one)), one.body_hash, now, until)
                    tables.watcher.key_taken(one.idempotency_key, one.event_id)
        known: dict[int, Known] = {}
        for place, one in enumerate(harvest.arrivals):
            row = tables.keys.get((one.project_id, one.idempotency_key))
            if one.accepted_at is not None or (
                row is not None and row.event_id == one.event_id and row.body_hash == one.body_hash
            ):
                tables.inbox.setdefault(event_of(one), xid)
            if one.accepted_at is not None or row is None:
                continue
            if row.body_hash != one.body_hash:
                self._bury(tables, xid, _conflict(one, row))
            if row.body_hash != one.body_hash or tables.inbox.get(event_of(one)) != xid:
                known[place] = Known(row.body_hash != one.body_hash, row.body_hash)
        return known

    def _bury(self, tables: Tables, xid: int, dead: DeadRecord) -> bool:
        if dead.dead_letter_id in tables.dead_letters:
            return False
        tables.dead_letters[dead.dead_letter_id] = dead
        tables.watcher.buried(dead)
        headers = json.dumps({"a44-dead-letter-id": dead.dead_letter_id, "a44-error-code": dead.error_code})
        tables.announce(xid, self._dead_letters_topic, dead.dead_letter_id, headers, dead.raw or b"")
        return True

    def advance(self, tables: Tables, harvest: Harvest) -> None:
        topic_id = self._topic_ids[harvest.topic]
        for partition, reached in sorted(harvest.reached.items()):
            row = tables.progress.setdefault((harvest.topic, partition), Progress(topic_id))
            is_same = row.topic_id == topic_id
            row.next_offset = max(row.next_offset, reached.next_offset) if is_same else reached.next_offset
            row.topic_id, row.seen = topic_id, reached.followed.seen
            row.seq = max(row.seq, reached.followed.seq)
        for partition, seq in sorted(harvest.missing.items()):
            tables.requests.setdefault((harvest.topic, partition), seq)


def _conflict(one: Arrival, row: Key) -> DeadRecord:
    return DeadRecord(
        dead_letter_id=one.dead_letter_id,
        project_id=one.project_id,
        reason="permanent_error",
        error_code="E_IDEMPOTENCY_CONFLICT",
        summary=f"the key was first used by {row.event_id} with another body",
        raw=one.raw,
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
    )
