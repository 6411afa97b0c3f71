"""The relay's store in memory: shard with lease and epoch, cursor, horizon, numbers."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from processors.ports.relay import Cursor, Hold, OutboxRow, Progress, Topic, Unread
from schemas.errors import Unavailable
from tests.simulation.memory.database import Connection, ConnectionLost, Database
from tests.simulation.memory.tables import SEAL_KEY, Place, Tables

Answer = TypeVar("Answer")
MOST_CHECKPOINTS = 32


class MemoryRelayStore:
    """Implements `RelayStore`. `lease` is in seconds."""

    def __init__(self, database: Database, lease: float) -> None:
        self._database = database
        self._lease = lease
        self._connection: Connection | None = None
        self._wake = asyncio.Event()

    @property
    def lease(self) -> float:
        return self._lease

    def wake(self) -> None:
        self._wake.set()

    async def wait_for_wake(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    async def take(self, owner: str) -> Hold | None:
        def take(tables: Tables, _: int) -> int | None:
            shard, now = tables.shard, self._database.now()
            if shard.lease_until is not None and shard.lease_until >= now and shard.owner != owner:
                return None
            shard.owner, shard.epoch = owner, shard.epoch + 1
            shard.lease_until = now + timedelta(seconds=self._lease)
            return shard.epoch

        epoch = await self._run(take)
        return None if epoch is None else await self.renew(epoch)

    async def renew(self, epoch: int) -> Hold | None:
        def renew(tables: Tables, _: int) -> Hold | None:
            if not _is_ours(tables, epoch):
                return None
            tables.shard.lease_until = self._database.now() + timedelta(seconds=self._lease)
            _keep_checkpoint(tables)
            asked = frozenset(topic for topic, _ in tables.requests)
            return Hold(epoch, Cursor(tables.shard.xid, tables.shard.id), asked)

        return await self._run(renew)

    async def waits(self, cursor: Cursor) -> bool:
        return await self._look(lambda tables: any(cursor < (row.xid, row.id) for row in tables.outbox))

    async def upper(self) -> int:
        return await self._look(lambda _: self._database.upper())

    async def horizon(self, upper: int) -> int:
        return await self._look(lambda _: self._database.oldest_open(upper))

    async def rows(self, cursor: Cursor, horizon: int, limit: int) -> list[OutboxRow]:
        def rows(tables: Tables) -> list[OutboxRow]:
            behind = [row for row in tables.outbox if cursor < (row.xid, row.id) and row.xid < horizon]
            return sorted(behind, key=lambda row: (row.xid, row.id))[:limit]

        return await self._look(rows)

    async def seal_key(self) -> bytes:
        return await self._look(lambda _: SEAL_KEY)

    async def numbers(self) -> dict[tuple[str, int], int]:
        return await self._look(lambda tables: dict(tables.numbers))

    async def topics(self) -> dict[str, Topic]:
        return await self._look(lambda tables: dict(tables.relay_topics))

    async def is_read_up(self, topic: str) -> bool:
        def is_read_up(tables: Tables) -> bool:
            if topic not in _read(tables):
                return True
            return all(_has(tables, place) >= seq for place, seq in tables.numbers.items() if place[0] == topic)

        return await self._look(is_read_up)

    async def unread(self) -> dict[tuple[str, int], Unread]:
        def unread(tables: Tables) -> dict[tuple[str, int], Unread]:
            found = {}
            for (topic, partition), given in tables.numbers.items():
                read, used = tables.progress.get((topic, partition)), tables.relay_topics.get(topic)
                if topic not in _read(tables) or used is None or (read and read.topic_id != used.topic_id):
                    continue
                seq, at = (read.seq, read.next_offset) if read else (0, 0)
                if given > seq:
                    found[topic, partition] = Unread(given, seq, at)
            return found

        return await self._look(unread)

    async def go_back(self, epoch: int, topics: Collection[str]) -> bool:
        def go_back(tables: Tables, _: int) -> bool:
            if not _is_ours(tables, epoch):
                return False
            _go_back(tables, sorted(topics))
            return True

        return await self._run(go_back)

    async def advance(self, epoch: int, progress: Progress) -> bool:
        def advance(tables: Tables, _: int) -> bool:
            if not _is_ours(tables, epoch):
                return False
            shard = tables.shard
            shard.xid, shard.id = progress.cursor
            shard.lease_until = self._database.now() + timedelta(seconds=self._lease)
            tables.numbers.update(progress.numbers)
            for place, seq in progress.numbers.items():
                tables.highest[place] = max(tables.highest.get(place, 0), seq)
            tables.relay_topics.update(progress.topics)
            tables.refused_rows.update((dead.dead_letter_id, dead) for dead in progress.dead)
            tables.watcher.cursor_moved(shard)
            return True

        return await self._run(advance)

    async def release(self, epoch: int) -> None:
        def release(tables: Tables, _: int) -> None:
            if tables.shard.epoch == epoch:
                tables.shard.owner = tables.shard.lease_until = None

        await self._run(release)

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._database.connect()
        return self._connection

    async def _look(self, work: Callable[[Tables], Answer]) -> Answer:
        try:
            return await self._database.read(await self._connected(), work)
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer the relay: {exc}") from exc

    async def _run(self, work: Callable[[Tables, int], Answer]) -> Answer:
        try:
            return await self._database.run(await self._connected(), work)
        except ConnectionLost as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer the relay: {exc}") from exc


def _is_ours(tables: Tables, epoch: int) -> bool:
    return tables.shard.epoch == epoch and tables.shard.owner is not None


def _read(tables: Tables) -> dict[str, None]:
    """The topics that ingest reads."""
    return {topic: None for topic, _ in tables.progress}


def _has(tables: Tables, place: Place) -> int:
    row = tables.progress.get(place)
    return row.seq if row is not None else 0


def _newest_passed(tables: Tables, topics: Collection[str]) -> tuple[int, int] | None:
    """The newest checkpoint of whose numbers in these topics ingest has all."""
    passed = [
        at
        for at, numbers in tables.checkpoints.items()
        if all(place[0] not in topics or _has(tables, place) >= seq for place, seq in numbers.items())
    ]
    return max(passed, default=None)


def _keep_checkpoint(tables: Tables) -> None:
    passed = _newest_passed(tables, _read(tables))
    is_full = len(tables.checkpoints) >= MOST_CHECKPOINTS
    at = (tables.shard.xid, tables.shard.id)
    if not is_full and tables.numbers:
        tables.checkpoints.setdefault(at, dict(tables.numbers))
    if passed is not None:
        tables.checkpoints = {at: numbers for at, numbers in tables.checkpoints.items() if at >= passed}


def _go_back(tables: Tables, topics: Sequence[str]) -> None:
    shard, read = tables.shard, _read(tables)
    passed = _newest_passed(tables, topics) if all(topic in read for topic in topics) else None
    goal = passed if passed is not None else (0, 0)
    for place in tables.numbers:
        if passed is not None:
            tables.numbers[place] = tables.checkpoints[passed].get(place, 0)
        elif place[0] in topics and place[0] in read:
            tables.numbers[place] = min(tables.numbers[place], _has(tables, place))
    shard.xid, shard.id = min((shard.xid, shard.id), goal)
    tables.checkpoints = {at: numbers for at, numbers in tables.checkpoints.items() if at <= goal}
    tables.requests = {place: seq for place, seq in tables.requests.items() if place[0] not in topics}
    tables.watcher.went_back(shard)
