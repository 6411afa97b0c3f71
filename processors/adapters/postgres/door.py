"""The door on Postgres: key, envelope or manual run in one transaction, many acceptances in one commit.

A repeated write is harmless: the key row names the event, so the second try finds itself as the winner,
and an envelope that went out twice carries the same event id. So a short absence of Postgres is waited
out with the batch in hand: those behind it keep their places, and callers hear of it after some seconds.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime

import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.batches import ConnectionLostError, Statement, commit
from processors.adapters.postgres.clock import DatabaseClock
from processors.adapters.postgres.columns import columns
from processors.adapters.postgres.connections import connect, cut
from processors.adapters.postgres.grants import create_runs, grant_ready, granted, lock_queues, note_bodies, queues_of
from processors.adapters.postgres.statements import statements
from processors.adapters.postgres.wakeups import Channel, Notifier
from processors.ports import crash_points
from processors.ports.door import Acceptance, Answer, Outcome
from processors.ports.runs import Grant
from processors.runtime.group_commit import GroupCommit
from schemas.errors import Unavailable

_log = structlog.get_logger("door")
PATIENCE_SECONDS = 5.0  # for Postgres to come back: a restart, and less than senders wait
RETRY_SECONDS = 0.1
MOST_QUEUED = 20_000
STOP_SECONDS = 2.0


def key_hash(project_id: str, idempotency_key: str) -> bytes:
    """Which row a key is: 16 bytes over project and key, the project first."""
    return hashlib.sha256(f"{project_id}\0{idempotency_key}".encode()).digest()[:16]


class PostgresDoor:
    """`on_grants` hears of runs granted by this door, after the commit; `queued` is how many may wait for theirs."""

    def __init__(
        self,
        dsn: str,
        events_topic: str,
        notifier: Notifier,
        on_grants: Callable[[Sequence[Grant]], None],
        *,
        patience: float = PATIENCE_SECONDS,
        queued: int = MOST_QUEUED,
    ) -> None:
        self._dsn = dsn
        self._topic = events_topic
        self._notifier = notifier
        self._on_grants = on_grants
        self._clock = DatabaseClock()
        self._conn: AsyncConnection[TupleRow] | None = None
        self._patience = patience
        self._away_since: float | None = None
        # Twice as long: what came when the patience with Postgres was nearly over has its own try still.
        self._commits: GroupCommit[Acceptance, Answer] = GroupCommit(
            self._write, _weight, queued=queued, patience=2 * patience
        )

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self) -> None:
        """Connect and read the clock. Raises `Unavailable`."""
        await self._connection()

    async def aclose(self) -> None:
        """Finish what is being written, but wait for no Postgres that is away: whoever was not answered asks again."""
        self._patience = 0.0
        if not await self._commits.settled(STOP_SECONDS) and self._conn is not None:
            _log.warning("door_closed_while_writing", seconds=STOP_SECONDS)
            cut(self._conn)
            await self._commits.settled(STOP_SECONDS)
        if self._conn is not None:
            await self._conn.close()

    async def accept(self, item: Acceptance) -> Answer:
        return await self._commits.submit(item)

    async def _connection(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            try:
                async with asyncio.timeout(max(self._patience, 1.0)):  # an address may be there and never answer
                    self._conn = await connect(self._dsn, "door")
            except TimeoutError as exc:
                raise Unavailable("E_UNAVAILABLE", "Postgres takes the connection and does not answer") from exc
            await self._clock.sync(self._conn)
        return self._conn

    async def _write(self, batch: Sequence[Acceptance]) -> Sequence[Answer]:
        """Fold what shares a key (a statement may touch a key once), write, answer each."""
        hashes = [key_hash(item.project_id, item.idempotency_key) for item in batch]
        first: dict[bytes, Acceptance] = {}
        for digest, item in zip(hashes, batch, strict=True):
            first.setdefault(digest, item)
        rows = await self._commit(list(first), list(first.values()))
        return [_answer(item, rows.get(digest)) for digest, item in zip(hashes, batch, strict=True)]

    async def _commit(self, hashes: list[bytes], items: list[Acceptance]) -> dict[bytes, TupleRow]:
        batch, read, grants = _transaction(hashes, items, self._topic)
        results = await self._through_outages(batch)
        crash_points.reach("after_db_write_before_publish")
        self._announce(granted(results[grants]) if grants is not None else [], items)
        return {row[0]: row for row in results[read]}

    async def _through_outages(self, batch: Sequence[Statement]) -> list[list[TupleRow]]:
        """Commit, and where the connection broke or none is to be had, again. Raises `Unavailable` when Postgres has
        been away for longer than the patience, whichever batch first met that.
        """
        while True:
            try:
                conn = await self._connection()
            except Unavailable as exc:
                await self._bide(exc)
                continue
            try:
                results = await commit(conn, batch)
            except ConnectionLostError as exc:
                await self._bide(exc)
            else:
                self._away_since = None
                return results

    async def _bide(self, exc: Exception) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            _log.warning("postgres_away", reason=str(exc))
        if now - self._away_since >= self._patience:
            raise Unavailable(
                "E_UNAVAILABLE", "Postgres went away while this was being accepted; send it again with the same key"
            ) from exc
        await asyncio.sleep(RETRY_SECONDS)

    def _announce(self, grants: Sequence[Grant], items: Sequence[Acceptance]) -> None:
        if any(item.envelope is not None for item in items):
            self._notifier.wake(Channel.OUTBOX)
        if grants:
            self._notifier.wake(Channel.GRANTED)
            self._on_grants(grants)


def _weight(item: Acceptance) -> int:
    return len(item.envelope or b"") + (len(item.run.input) if item.run is not None else 0)


def _transaction(hashes: list[bytes], items: list[Acceptance], topic: str) -> tuple[list[Statement], int, int | None]:
    """The statements, and which of them answer the keys and the grants. Lock order: queues, keys, runs, outbox."""
    sql = statements("door")
    names = ("project_id", "idempotency_key", "key_source", "body_hash", "event_id", "run_id", "catalog")
    keys = {**columns(items, names), "key_hash": hashes, "keep": [item.window for item in items]}
    manual = [(digest, item, item.run) for digest, item in zip(hashes, items, strict=True) if item.run is not None]
    runs = [run for _, _, run in manual]
    batch: list[Statement] = lock_queues(*queues_of(runs)) if runs else []
    batch += [(sql["take_keys"], keys), (sql["read_keys"], {"key_hash": hashes})]
    read, grants = len(batch) - 1, None
    if runs:
        seen = {"key_hash": [digest for digest, _, _ in manual], **columns(runs, ("project_id", "event_id"))}
        batch += [(sql["note_events"], seen), create_runs(runs, [None] * len(runs)), grant_ready(*queues_of(runs))]
        grants = len(batch) - 1
        batch += note_bodies(runs)
    if any(item.envelope is not None for item in items):
        values = {
            "topic": topic,
            "key_hash": hashes,
            "value": [item.envelope for item in items],
            **columns(items, ("event_id", "partition_key")),
        }
        batch.append((sql["announce_envelopes"], values))
    return batch, read, grants


def _answer(item: Acceptance, row: TupleRow | None) -> Answer:
    if row is None:  # it was not taken, and nobody else has it
        return Answer(Outcome.OUTDATED, item.event_id, item.run_id, 0.0, item.body_hash)
    _, event_id, run_id, body_hash, age, catalog = row
    if event_id == item.event_id:
        outcome = Outcome.CREATED
    elif item.catalog not in (None, catalog):
        outcome = Outcome.OUTDATED
    else:
        outcome = Outcome.DUPLICATE if bytes(body_hash) == item.body_hash else Outcome.CONFLICT
    return Answer(outcome, event_id, run_id, max(age, 0.0), bytes(body_hash))
