"""A migrated database, and everything that writes to the log, made as tests need it."""

import hashlib
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from processors.adapters.postgres.batches import commit
from processors.adapters.postgres.columns import columns
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.grants import create_runs, grant_ready, lock_queues, queues_of
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.adapters.postgres.statements import statements
from processors.adapters.postgres.wakeups import Notifier
from processors.ports.door import Acceptance
from processors.ports.journal import Batch, Claim, Entry, RunEnd, RunRest
from processors.ports.measures import Measures
from processors.ports.runs import Grant, NewRun
from schemas.ids import new_event_id, run_id
from schemas.records import Kind, Record, Status
from tests.support.waiting import until

PROJECT, QUEUE = "shop", "q_orders"
TABLES = (
    "live_runs", "runs_ended", "step_attempts", "idempotency_keys", "inbox", "ingest_progress", "outbox", "queues",
    "queue_deltas", "lanes", "sessions", "run_mail",
    "late_attempts", "filter_misses", "event_types",
    "dead_letters", "redrives", "redrive_letters", "projects", "audit_log", "relay_partitions", "relay_requests",
)  # fmt: skip
EVENTS, DEAD_LETTERS = "t.events", "t.dead-letters"
OF_DIRECT_RECORDS = (
    "body_hash", "dead_letter_id", "raw", "topic", "partition", "record_offset", "key", "headers", "left_out",
)  # fmt: skip


def hash_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def manual_acceptance(run: NewRun, body: str = "{}", window: float = 86_400.0) -> Acceptance:
    return Acceptance(
        project_id=run.project_id,
        idempotency_key=run.idempotency_key,
        key_source="header",
        body_hash=hash_of(body),
        event_id=run.event_id,
        partition_key=run.partition_key,
        run_id=run.run_id,
        run=run,
        window=window,
    )


def end_of(claim: Claim, state: str = "succeeded") -> RunEnd:
    return RunEnd(
        run_id=claim.run_id,
        project_id=claim.project_id,
        queue_id=claim.queue_id,
        lane=claim.lane,
        lane_seq=claim.lane_seq,
        state=state,
        result="null",
        error=None,
        dead_letter_id=None,
        reason=None,
        summary=None,
    )


def rest_of(claim: Claim, visible_at: datetime | None, state: str = "sleeping") -> RunRest:
    return RunRest(claim.run_id, claim.project_id, claim.queue_id, state, visible_at)


def entry_of(claim: Claim, seq: int, value: str = "1", item: str | None = None) -> Entry:
    name = item or f"step-{seq}"
    now = datetime.now(UTC)
    record = Record(
        seq, Kind.STEP, name, 1, Status.SUCCEEDED, seq - 1, final=True, key=f"k{seq}", value=value, cost=0.001,
        recorded_at=now,
    )  # fmt: skip
    return Entry(claim.run_id, claim.generation, claim.project_id, record)


class Lab:
    """`grants` are those that the door has told of."""

    def __init__(self, dsn: str, conn: psycopg.AsyncConnection[dict[str, Any]], resources: AsyncExitStack) -> None:
        self.dsn = dsn
        self.conn = conn
        self.grants: list[Grant] = []
        self._resources = resources
        self._numbers = itertools.count(1)
        self._millis = int(datetime.now(UTC).timestamp() * 1000)

    # rows

    async def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        cursor = await self.conn.execute(query.encode(), params or None)
        return await cursor.fetchall() if cursor.description is not None else []

    async def column(self, query: str, *params: object) -> list[Any]:
        return [next(iter(row.values())) for row in await self.rows(query, *params)]

    async def value(self, query: str, *params: object) -> Any:
        (found,) = await self.column(query, *params)
        return found

    async def queue(
        self, queue: str = QUEUE, limit: int = 100, *, ordered: bool = False, project: str = PROJECT
    ) -> None:
        await self.rows(
            "insert into automation.queues (project_id, queue_id, max_concurrency, ordering) values (%s, %s, %s, %s)",
            project,
            queue,
            limit,
            "by-partition" if ordered else "none",
        )

    async def states(self) -> dict[str, int]:
        rows = await self.rows("select state, count(*)::int as n from automation.runs group by state")
        return {row["state"]: row["n"] for row in rows}

    async def taken(self, queue: str = QUEUE) -> int:
        """Slots in use as the counters say, with what was not folded yet."""
        found: int = await self.value(
            "select (running + coalesce((select sum(delta) from automation.queue_deltas d"
            " where d.queue_id = q.queue_id), 0))::int from automation.queues q where queue_id = %s",
            queue,
        )
        return found

    async def holding(self, queue: str = QUEUE) -> int:
        """Slots in use as the runs say."""
        found: int = await self.value(
            "select count(*)::int from automation.live_runs where queue_id = %s and state in ('granted', 'running')",
            queue,
        )
        return found

    # things that write

    def run(
        self,
        lane: str = "lane",
        *,
        ordered: bool = False,
        queue: str = QUEUE,
        project: str = PROJECT,
        key: str | None = None,
        millis: int | None = None,
    ) -> NewRun:
        number = next(self._numbers)
        event = new_event_id(millis or self._millis + number)  # ids in the order in which runs are made
        return NewRun(
            run_id=run_id(project, event, "trg_orders", 1),
            project_id=project,
            workflow_id="wf_orders",
            definition_id=1,
            version="1",
            queue_id=queue,
            lane=lane,
            ordered=ordered,
            event_id=event,
            event_type="order.paid",
            trigger_id="trg_orders",
            idempotency_key=key or f"key-{number}",
            partition_key=lane,
            correlation_id=None,
            operation_version=1,
            redrive_count=0,
            occurred_at="2026-07-19T14:00:00Z",
            input=f'{{"n":{number}}}',
        )

    async def make(self, runs: Sequence[NewRun], *, grant: bool = True) -> list[Grant]:
        """Make runs as ingest makes them, in one transaction."""
        conn = await connect(self.dsn, "lab")
        async with conn:
            events = columns(runs, ("project_id", "event_id"))
            doors = {"key_hash": [b""] * len(runs), "direct": [False] * len(runs)}
            seen = {**events, **doors, **{name: [] for name in OF_DIRECT_RECORDS}, "dead_letters_topic": DEAD_LETTERS}
            batch = [
                *lock_queues(*queues_of(runs)),
                (statements("ingest")["note_events"], seen),
                create_runs(runs, [None] * len(runs)),
            ]
            if grant:
                batch.append(grant_ready(*queues_of(runs)))
            results = await commit(conn, batch)
        return [Grant(*row) for row in results[-1]] if grant else []

    async def door(self) -> PostgresDoor:
        notifier = Notifier(self.dsn)
        self._resources.push_async_callback(notifier.aclose)
        door = PostgresDoor(self.dsn, EVENTS, notifier, self.grants.extend)
        self._resources.push_async_callback(door.aclose)
        await door.open()
        return door

    async def journal(self, lease: float = 30.0, owner: str = "executor-1") -> PostgresJournal:
        journal = PostgresJournal(self.dsn, owner, lease, DEAD_LETTERS)
        self._resources.push_async_callback(journal.aclose)
        await journal.open()
        return journal

    def schedule(self, measures: Measures | None = None) -> PostgresSchedule:
        schedule = PostgresSchedule(self.dsn, measures)
        self._resources.push_async_callback(schedule.aclose)
        return schedule

    async def ingest_log(self, window: float = 86_400.0) -> PostgresIngestLog:
        log = PostgresIngestLog(self.dsn, DEAD_LETTERS, window)
        self._resources.push_async_callback(log.aclose)
        await log.open()
        return log

    # what executors do

    async def claim(self, journal: PostgresJournal, room: int = 100) -> list[Claim]:
        return list(await journal.commit(Batch(look_for_granted=True, room=room)))

    async def kill_session(self, owner: str = "executor-1") -> None:
        await self.rows(
            "update automation.sessions set lease_until = clock_timestamp() - interval '1 second'"
            " where owner = %s and alive",
            owner,
        )

    async def send_mail(self, run: str, kind: str = "cancel", body: str = "stop") -> None:
        """As the gateway sends it: under the head row's lock."""
        async with await psycopg.AsyncConnection.connect(self.dsn) as conn:
            await conn.execute("select from automation.live_runs where run_id = %s for no key update", (run,))
            await conn.execute(
                "insert into automation.run_mail (run_id, kind, body, actor) values (%s, %s, %s, 'maria')",
                (run, kind, body),
            )
            await conn.execute("update automation.live_runs set has_mail = true where run_id = %s", (run,))

    async def backend(self, application: str) -> int:
        """The process of the one connection with this name."""
        found: int = await self.value(
            "select pid from pg_stat_activity where application_name = %s and datname = current_database()", application
        )
        return found

    async def backend_of(self, journal: PostgresJournal) -> int:
        """The process that serves this journal."""
        assert journal._conn is not None
        return journal._conn.info.backend_pid

    async def waits_for_lock(self, application: str, waiters: int = 1) -> None:
        """Return once so many backends of this application wait for a lock."""
        query = (
            "select count(*) >= %s from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
            " and datname = current_database()"
        )

        async def is_waiting() -> bool:
            return bool(await self.value(query, waiters, application))

        await until(is_waiting, f"{waiters} of {application} waiting for a lock", 10)


@asynccontextmanager
async def open_lab(dsn: str) -> AsyncIterator[Lab]:
    async with AsyncExitStack() as resources:
        conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True, row_factory=dict_row)
        await resources.enter_async_context(conn)
        yield Lab(dsn, conn, resources)


async def empty(dsn: str) -> None:
    """All rows of the log go; partitions and what the migration put in stay."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        for table in TABLES:
            await conn.execute(sql.SQL("delete from {}").format(sql.Identifier("automation", table)))
