"""The door in memory: key, envelope or manual run in one transaction, many acceptances in one commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from processors.adapters.postgres.clock import DatabaseClock
from processors.ports.door import Acceptance, Answer, Outcome
from processors.ports.runs import Grant
from processors.runtime.group_commit import GroupCommit
from schemas.errors import Unavailable
from tests.simulation.memory.database import Connection, ConnectionLost, Database
from tests.simulation.memory.scheduling import create_runs, grant_ready, queues_of
from tests.simulation.memory.tables import Key, Tables

_TRIES = 3


class MemoryDoor:
    """Implements `Door`. `on_grants` hears of runs granted here, `on_outbox` of every commit."""

    def __init__(
        self,
        database: Database,
        events_topic: str,
        on_grants: Callable[[Sequence[Grant]], None],
        on_outbox: Callable[[], None],
    ) -> None:
        self._database = database
        self._topic = events_topic
        self._on_grants, self._on_outbox = on_grants, on_outbox
        self._clock = DatabaseClock()
        self._connection: Connection | None = None
        self._commits: GroupCommit[Acceptance, Answer] = GroupCommit(self._write)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self) -> None:
        await self._connected()

    async def accept(self, item: Acceptance) -> Answer:
        return await self._commits.submit(item)

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._database.connect()
            try:
                self._clock.observe(await self._database.read(self._connection, lambda _: self._database.now()))
            except ConnectionLost as exc:
                raise Unavailable("E_UNAVAILABLE", "Postgres told no time") from exc
        return self._connection

    async def _write(self, batch: Sequence[Acceptance]) -> Sequence[Answer]:
        first: dict[tuple[str, str], Acceptance] = {}
        for item in batch:
            first.setdefault(_key(item), item)
        written = await self._commit(list(first.values()))
        self._on_outbox()
        if written.grants:
            self._on_grants(written.grants)
        return [_answer(item, written) for item in batch]

    async def _commit(self, items: Sequence[Acceptance]) -> "_Written":
        for _ in range(_TRIES):
            try:
                connection = await self._connected()
                return await self._database.run(connection, partial(self._apply, items=items))
            except ConnectionLost:
                continue
        raise Unavailable("E_UNAVAILABLE", "Postgres went away while this was being accepted")

    def _apply(self, tables: Tables, xid: int, items: Sequence[Acceptance]) -> "_Written":
        now, runs = self._database.now(), [item.run for item in items if item.run is not None]
        tables.fold(queues_of(runs))
        take_keys(tables, items, now)
        held = {key: tables.keys[key] for key in map(_key, items) if key in tables.keys}
        won = [item for item in items if _is_held_by(item, held.get(_key(item)))]
        for item in won:
            if item.run is not None:
                tables.inbox.setdefault((item.project_id, item.event_id), xid)
        create_runs(tables, xid, runs, [None] * len(runs), now)
        grants = grant_ready(tables, queues_of(runs), now) if runs else []
        for item in won:
            if item.envelope is not None:
                tables.announce(xid, self._topic, item.partition_key, None, item.envelope)
        return _Written(held, grants, tables.catalog, now)


@dataclass(frozen=True, slots=True)
class _Written:
    """What stands behind a commit: the keys as they are held, what was granted, the catalog in force, the time."""

    keys: dict[tuple[str, str], Key]
    grants: list[Grant]
    catalog: int
    now: datetime


def take_keys(tables: Tables, items: Sequence[Acceptance], now: datetime) -> None:
    """Won where it is new or its window has passed, and when it was decided by the catalog in force."""
    for item in items:
        if item.catalog not in (None, tables.catalog):
            continue
        held = tables.keys.get(_key(item))
        if held is None or held.expires_at <= now:
            until = now + timedelta(seconds=tables.windows.get(item.project_id, item.window))
            tables.keys[_key(item)] = Key(item.event_id, item.run_id, item.body_hash, now, until)


def _key(item: Acceptance) -> tuple[str, str]:
    return item.project_id, item.idempotency_key


def _is_held_by(item: Acceptance, key: Key | None) -> bool:
    return key is not None and key.event_id == item.event_id


def _answer(item: Acceptance, written: _Written) -> Answer:
    key = written.keys.get(_key(item))
    if key is None:
        return Answer(Outcome.OUTDATED, item.event_id, item.run_id, 0.0, item.body_hash)
    if _is_held_by(item, key):
        outcome = Outcome.CREATED
    elif item.catalog not in (None, written.catalog):
        outcome = Outcome.OUTDATED
    else:
        outcome = Outcome.DUPLICATE if key.body_hash == item.body_hash else Outcome.CONFLICT
    return Answer(
        outcome, key.event_id, key.run_id, max((written.now - key.accepted_at).total_seconds(), 0.0), key.body_hash
    )
