"""Ingest on Postgres: a poll in one transaction, from the progress row's lock to the new offset.

Consumers of several topics may share one: they take turns on its connection.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.batches import ConnectionLostError, Statement, commit
from processors.adapters.postgres.clock import DatabaseClock
from processors.adapters.postgres.columns import columns
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.door import key_hash
from processors.adapters.postgres.grants import create_runs, grant_ready, granted, lock_queues, note_bodies, queues_of
from processors.adapters.postgres.misses import keep_misses
from processors.adapters.postgres.statements import statements
from processors.ports.ingest import Arrival, Committed, Followed, Harvest, Known, event_of
from schemas.errors import Unavailable

KEPT = ("key", "headers", "left_out")


class PostgresIngestLog:
    """`window` is how long keys are remembered, in seconds."""

    def __init__(self, dsn: str, dead_letters_topic: str, window: float) -> None:
        self._dsn = dsn
        self._dead_letters_topic = dead_letters_topic
        self._window = window
        self._clock = DatabaseClock()
        self._conn: AsyncConnection[TupleRow] | None = None
        self._seal_key = b""
        self._topic_ids: dict[str, str] = {}
        self._followed: dict[str, dict[int, Followed]] = {}
        self._turn = asyncio.Lock()

    def now(self) -> datetime:
        return self._clock.now()

    def followed(self, topic: str) -> Mapping[int, Followed]:
        return self._followed.get(topic, {})

    def seal_key(self) -> bytes:
        return self._seal_key

    async def open(self) -> None:
        await self._connection()

    async def aclose(self) -> None:
        if self._conn is not None:
            await self._conn.close()

    async def is_unread(self, topics: Collection[str]) -> bool:
        """Whether these topics of the relay's hold anything that was not read."""
        ((answer,),) = await self._ask("is_unread", {"topics": list(topics)}, f"what is unread of {', '.join(topics)}")
        return bool(answer)

    async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """Where to go on. In a topic that was made again everything is read; the relay's numbers go on counting."""
        rows = await self._ask("read_progress", {"topic": topic}, f"the offsets of {topic}")
        ((key,),) = await self._ask("read_seal_key", {}, f"who wrote the records of {topic}")
        self._seal_key = bytes(key)
        self._topic_ids[topic] = topic_id
        self._followed[topic] = {
            partition: Followed(seq, seen if told_id == topic_id else seq) for partition, told_id, _, seq, seen in rows
        }
        wanted = set(partitions)
        return {p: offset for p, told_id, offset, *_ in rows if p in wanted and told_id == topic_id}

    async def commit(self, harvest: Harvest) -> Committed:
        batch, asked = self._transaction(harvest)
        try:
            async with self._turn:
                results = await commit(await self._connection(), batch)
        except ConnectionLostError as exc:
            # Whether it was committed is not known; the same records come again and find themselves in the inbox.
            raise Unavailable("E_UNAVAILABLE", f"the connection to Postgres broke: {exc}") from exc
        followed = self._followed.setdefault(harvest.topic, {})
        followed.update((partition, reached.followed) for partition, reached in harvest.reached.items())
        return Committed(
            granted(results[asked["grants"]]) if "grants" in asked else (),
            _known(results[asked["decided"]]) if "decided" in asked else {},
            {letter for (letter,) in results[asked["buried"]]} if "buried" in asked else frozenset(),
        )

    async def _ask(self, name: str, given: Mapping[str, Any], what: str) -> list[TupleRow]:
        async with self._turn:
            conn = await self._connection()
            try:
                return await (await conn.execute(statements("ingest")[name], given)).fetchall()
            except psycopg.Error as exc:
                await conn.close()
                raise Unavailable("E_UNAVAILABLE", f"Postgres cannot tell {what}: {exc}") from exc

    async def _connection(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._dsn, "ingest")
            await self._clock.sync(self._conn)
        return self._conn

    def _transaction(self, harvest: Harvest) -> tuple[list[Statement], dict[str, int]]:
        """The statements, and which of them answer: the grants, what became of direct records, the letters.

        Lock order: progress, queues, keys, inbox, lanes, runs, dead letters, outbox.
        """
        sql, asked = statements("ingest"), dict[str, int]()
        partitions = sorted(harvest.reached)
        batch: list[Statement] = [(sql["hold_progress"], {"topic": harvest.topic, "partitions": partitions})]
        if harvest.runs:
            batch += lock_queues(*queues_of(harvest.runs))
        if harvest.arrivals:
            batch += self._keys(harvest)
            asked["decided"] = len(batch) - 1
        if harvest.postponed:
            names = ("letter_id", "topic", "partition_key", "headers", "value")
            batch.append((sql["postpone"], columns(harvest.postponed, names)))
        if harvest.runs:
            doors = {event_of(one): one.accepted_at for one in harvest.arrivals if one.accepted_at is not None}
            batch.append(create_runs(harvest.runs, [doors.get(event_of(run)) for run in harvest.runs]))
            batch.append(grant_ready(*queues_of(harvest.runs)))
            asked["grants"] = len(batch) - 1
            batch += note_bodies(harvest.runs)
        if harvest.misses:
            batch.append(keep_misses(harvest.misses))
        if harvest.dead:
            batch += _kept_bodies(harvest)
            batch.append(self._burials(harvest))
            asked["buried"] = len(batch) - 1
        reached = [harvest.reached[partition] for partition in partitions]
        advance = {
            "topic": harvest.topic,
            "partitions": partitions,
            "topic_ids": [self._topic_ids[harvest.topic]] * len(partitions),
            "next_offsets": [one.next_offset for one in reached],
            "seqs": [one.followed.seq for one in reached],
            "seen": [one.followed.seen for one in reached],
        }
        batch.append((sql["advance"], advance))
        if harvest.missing:
            missing = {"partitions": list(harvest.missing), "seqs": list(harvest.missing.values())}
            batch.append((sql["ask_again"], {"topic": harvest.topic, **missing}))
        return batch, asked

    def _keys(self, harvest: Harvest) -> list[Statement]:
        """Direct records take their keys here; what came through a door has taken its key there."""
        hashes = [key_hash(one.project_id, one.idempotency_key) for one in harvest.arrivals]
        both = zip(hashes, harvest.arrivals, strict=True)
        direct = [(digest, one) for digest, one in both if one.accepted_at is None]
        batch: list[Statement] = [self._take_keys(harvest, direct)] if direct else []
        return [*batch, self._note(hashes, harvest.arrivals)]

    def _take_keys(self, harvest: Harvest, direct: list[tuple[bytes, Arrival]]) -> Statement:
        first: dict[bytes, Arrival] = {}
        for digest, one in direct:
            first.setdefault(digest, one)
        owners = list(first.values())
        run_ids = {event_of(run): run.run_id for run in reversed(harvest.runs)}
        return statements("door")["take_keys"], {
            **columns(owners, ("project_id", "idempotency_key", "body_hash", "event_id")),
            "key_hash": list(first),
            "key_source": ["envelope"] * len(owners),
            "run_id": [run_ids.get(event_of(one)) for one in owners],
            "keep": [self._window] * len(owners),
            "catalog": [None] * len(owners),
        }

    def _note(self, hashes: list[bytes], arrivals: list[Arrival]) -> Statement:
        names = ("project_id", "event_id", "body_hash", "dead_letter_id", "topic", "partition")
        return statements("ingest")["note_events"], {
            **columns(arrivals, names),
            **columns([one.kept for one in arrivals], KEPT),
            "key_hash": hashes,
            "direct": [one.accepted_at is None for one in arrivals],
            "raw": [one.raw if one.accepted_at is None else None for one in arrivals],
            "record_offset": [one.offset for one in arrivals],
            "dead_letters_topic": self._dead_letters_topic,
        }

    def _burials(self, harvest: Harvest) -> Statement:
        names = (
            "dead_letter_id", "project_id", "workflow_id", "trigger_id", "reason", "error_code", "summary", "envelope",
            "raw", "topic", "partition",
        )  # fmt: skip
        return statements("ingest")["bury"], {
            **columns(harvest.dead, names),
            **columns([one.kept for one in harvest.dead], KEPT),
            "record_offset": [one.offset for one in harvest.dead],
            "event": [one.event_id for one in harvest.dead],
            "dead_letters_topic": self._dead_letters_topic,
        }


def _kept_bodies(harvest: Harvest) -> list[Statement]:
    """What letters refer to stays in storage, as what runs refer to."""
    references = sorted({one.data_ref for one in harvest.dead if one.data_ref is not None})
    return [(statements("ingest")["keep_bodies"], {"references": references})] if references else []


def _known(rows: Sequence[TupleRow]) -> Mapping[int, Known]:
    """By place in the harvest; the statement counts from one."""
    return {place - 1: Known(is_conflict, bytes(first)) for place, is_conflict, first in rows}
