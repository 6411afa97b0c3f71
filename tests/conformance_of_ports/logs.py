"""The log behind its ports, on Postgres and in memory, and the few things that a test does behind their back."""

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.relay_store import open_relay_store
from processors.ports.door import Door
from processors.ports.ingest import IngestLog
from processors.ports.journal import Journal, Mail
from processors.ports.relay import RelayStore
from processors.ports.runs import Grant, NewRun
from processors.ports.schedule import Schedule
from schemas.ids import new_event_id, run_id
from tests.conformance_of_ports.plain_time import PlainLoop
from tests.integration.log.lab import DEAD_LETTERS, EVENTS, PROJECT, QUEUE, Lab
from tests.simulation.memory.database import Database
from tests.simulation.memory.door import MemoryDoor
from tests.simulation.memory.ingest_log import MemoryIngestLog
from tests.simulation.memory.journal import MemoryJournal
from tests.simulation.memory.network import Network, Weather
from tests.simulation.memory.relay_store import MemoryRelayStore
from tests.simulation.memory.schedule import MemorySchedule
from tests.simulation.memory.tables import Queue, Tables, Watcher

DAY_SECONDS = 86_400.0
LEASE = 30.0


class Log(Protocol):
    """One log; `grants` are those that doors have told of."""

    grants: list[Grant]

    async def journal(self, owner: str = "executor-1", lease: float = LEASE) -> Journal: ...
    async def door(self) -> Door: ...
    async def ingest_log(self) -> IngestLog: ...
    async def relay_store(self, lease: float = LEASE) -> RelayStore: ...
    def schedule(self) -> Schedule: ...
    async def queue(self, limit: int = 100, *, ordered: bool = False) -> None: ...
    async def end_lease(self, owner: str = "executor-1") -> None: ...
    async def break_connection(self, journal: Journal) -> None: ...
    async def leave_mail(self, run: str) -> None: ...
    async def remember(self, seconds: float) -> None: ...  # for how long keys of the project are kept from then on
    async def publish(self) -> int: ...  # the version of the catalog that is in force then
    async def states(self) -> dict[str, str]: ...


def new_run(
    number: int,
    lane: str = "lane",
    *,
    ordered: bool = False,
    deadline: float | None = None,
    stale_at: str | None = None,
) -> NewRun:
    """Ids in the order of their numbers."""
    event = new_event_id(int(datetime.now(UTC).timestamp() * 1000) + number)
    return NewRun(
        run_id=run_id(PROJECT, event, "trg_orders", 1),
        project_id=PROJECT,
        workflow_id="wf_orders",
        definition_id=1,
        version="1",
        queue_id=QUEUE,
        lane=lane,
        ordered=ordered,
        event_id=event,
        event_type="order.paid",
        trigger_id="trg_orders",
        idempotency_key=f"key-{number}",
        partition_key=lane,
        correlation_id=None,
        operation_version=1,
        redrive_count=0,
        occurred_at="2026-07-19T14:00:00Z",
        input=f'{{"n":{number}}}',
        deadline=deadline,
        stale_at=stale_at,
    )


class PostgresLog:
    def __init__(self, lab: Lab, resources: AsyncExitStack) -> None:
        self._lab = lab
        self._resources = resources
        self.grants = lab.grants

    async def journal(self, owner: str = "executor-1", lease: float = LEASE) -> Journal:
        return await self._lab.journal(lease, owner)

    async def door(self) -> Door:
        return await self._lab.door()

    async def ingest_log(self) -> IngestLog:
        return await self._lab.ingest_log()

    async def relay_store(self, lease: float = LEASE) -> RelayStore:
        return await self._resources.enter_async_context(open_relay_store(self._lab.dsn, lease=lease))

    def schedule(self) -> Schedule:
        return self._lab.schedule()

    async def queue(self, limit: int = 100, *, ordered: bool = False) -> None:
        await self._lab.queue(limit=limit, ordered=ordered)

    async def end_lease(self, owner: str = "executor-1") -> None:
        await self._lab.kill_session(owner)

    async def break_connection(self, journal: Journal) -> None:
        pid = await self._lab.backend_of(cast("PostgresJournal", journal))
        await self._lab.rows("select pg_terminate_backend(%s, 5000)", pid)

    async def leave_mail(self, run: str) -> None:
        await self._lab.send_mail(run)

    async def remember(self, seconds: float) -> None:
        kept = (
            "insert into automation.projects (project_id, dedup_window_hours) values (%s, %s)"
            " on conflict (project_id) do update set dedup_window_hours = excluded.dedup_window_hours"
        )
        await self._lab.rows(kept, PROJECT, seconds / 3600)

    async def publish(self) -> int:
        changed = "update automation.installation set catalog_version = catalog_version + 1 returning catalog_version"
        return int(await self._lab.value(changed))

    async def states(self) -> dict[str, str]:
        return {row["run_id"]: row["state"] for row in await self._lab.rows("select * from automation.runs")}


class MemoryLog:
    def __init__(self) -> None:
        loop: Any = PlainLoop()
        self.database = Database(Network(loop, random.Random(1), Weather()), Watcher())
        self.database.tables.watcher = Watcher()
        self.grants: list[Grant] = []
        self._mail = itertools.count(1)

    async def journal(self, owner: str = "executor-1", lease: float = LEASE) -> Journal:
        journal = MemoryJournal(self.database, owner, lease)
        await journal.open()
        return journal

    async def door(self) -> Door:
        door = MemoryDoor(self.database, EVENTS, self.grants.extend, lambda: None)
        await door.open()
        return door

    async def ingest_log(self) -> IngestLog:
        log = MemoryIngestLog(self.database, DEAD_LETTERS, DAY_SECONDS)
        await log.open()
        return log

    async def relay_store(self, lease: float = LEASE) -> RelayStore:
        return MemoryRelayStore(self.database, lease)

    def schedule(self) -> Schedule:
        return MemorySchedule(self.database)

    async def queue(self, limit: int = 100, *, ordered: bool = False) -> None:
        self._tables.queues[PROJECT, QUEUE] = Queue(limit, ordered, max_attempts=5)

    async def end_lease(self, owner: str = "executor-1") -> None:
        for session in self._tables.sessions.values():
            if session.owner == owner and session.alive:
                session.lease_until = self.database.now() - timedelta(seconds=1)

    async def break_connection(self, journal: Journal) -> None:
        connection = cast("MemoryJournal", journal)._connection
        assert connection is not None
        connection.break_now()

    async def leave_mail(self, run: str) -> None:
        mail = Mail(next(self._mail), run, "cancel", "stop", "maria")
        self._tables.mail[mail.mail_id] = mail
        self._tables.live[run].has_mail = True

    async def remember(self, seconds: float) -> None:
        self._tables.windows[PROJECT] = seconds

    async def publish(self) -> int:
        self._tables.catalog += 1
        return self._tables.catalog

    async def states(self) -> dict[str, str]:
        live = {run: one.state for run, one in self._tables.live.items()}
        return live | {run: one.state for run, one in self._tables.ended.items()}

    @property
    def _tables(self) -> Tables:
        return self.database.tables


@asynccontextmanager
async def postgres_log(lab: Lab) -> AsyncIterator[Log]:
    async with AsyncExitStack() as resources:
        yield PostgresLog(lab, resources)
