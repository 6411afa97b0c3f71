"""Ingest: from the events topic to runs in their lanes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ops.composition.roles.parts import HOUR_SECONDS, OnReady, open_hints, topics_of
from ops.composition.roles.reading import consume, reading_of, when_assigned
from ops.composition.storage import storage_of
from ops.settings import Settings
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.ingest.ingest import Ingest
from processors.ports.measures import Measures
from processors.ports.schemas import Schemas
from processors.runtime.current_catalog import CurrentCatalog


async def run(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    topics = topics_of(settings)
    log = PostgresIngestLog(settings.postgres_dsn, topics.dead_letters, settings.dedup_window_hours * HOUR_SECONDS)
    async with (
        open_pool(settings.postgres_dsn, "ingest", size=1) as pool,
        open_hints(settings) as hints,
        _open_registry(settings) as registry,
    ):
        await log.open()
        catalog = CurrentCatalog(PostgresCatalog(pool))
        ingest = Ingest(log, catalog, hints, measures, storage_of(settings), registry)
        reading = reading_of(settings, topics.events, f"{settings.topic_prefix}.ingest")
        await consume(reading, ingest, log, stop, when_assigned(on_ready, "ingest"), measures)
        await log.aclose()


@asynccontextmanager
async def _open_registry(settings: Settings) -> AsyncIterator[Schemas | None]:
    if not settings.schema_registry_url:
        yield None
        return
    from processors.adapters.kafka.registry import SchemaRegistry  # noqa: PLC0415 - its client loads for long

    registry = SchemaRegistry(settings.schema_registry_url)
    try:
        yield registry
    finally:
        registry.close()
