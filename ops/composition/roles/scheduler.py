"""The scheduler: what is due, what was lost, what may go."""

import asyncio
from datetime import UTC, datetime

from ops.composition.roles.parts import OnReady, open_hints
from ops.composition.storage import storage_of
from ops.settings import Settings
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.redrives import PostgresRedrives
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.adapters.postgres.wakeups import Channel, listen
from processors.ports.measures import Measures
from processors.runtime.current_catalog import CurrentCatalog
from processors.scheduler.redriver import Redriver
from processors.scheduler.scheduler import Scheduler
from processors.scheduler.sweep_of_bodies import run_sweep


async def run(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    schedule = PostgresSchedule(settings.postgres_dsn, measures, outbox_days=settings.outbox_retention_days)
    async with (
        open_pool(settings.postgres_dsn, "scheduler-redrives", size=1, hot=True) as pool,
        open_hints(settings) as hints,
    ):
        redriver = Redriver(
            PostgresRedrives(pool), CurrentCatalog(PostgresCatalog(pool)), measures, storage_of(settings)
        )
        scheduler = Scheduler(schedule, hints, measures, redriver)
        listening = asyncio.create_task(
            listen(settings.postgres_dsn, {Channel.PENDING: scheduler.wake}, stop, measures)
        )
        sweeping = asyncio.create_task(_sweep_bodies(settings, schedule, stop, measures))
        on_ready("scheduler", {})
        await scheduler.run(stop)
        await asyncio.gather(listening, sweeping)
        await schedule.aclose()


async def _sweep_bodies(
    settings: Settings, schedule: PostgresSchedule, stop: asyncio.Event, measures: Measures
) -> None:
    storage = storage_of(settings)
    if storage is not None:
        days = settings.storage_orphan_days
        await run_sweep(storage, schedule.kept_bodies, lambda: datetime.now(UTC), days, stop, measures)
