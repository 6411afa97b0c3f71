"""Ingest: from the events topic to runs in their lanes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ops.composition.roles.parts import HOUR_SECONDS, OnReady, open_hints, topics_of
from ops.composition.roles.reading import IDLE_FETCH_WAIT, consume, nobody, reading_of, when_assigned
from ops.composition.storage import storage_of
from ops.settings import Settings
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.ingest.ingest import Ingest
from processors.ingest.retries import Retries
from processors.ports.measures import Measures
from processors.ports.schemas import Schemas
from processors.runtime.current_catalog import CurrentCatalog

LONG_FETCH_WAIT = 2.0  # seconds, of topics on which nothing is urgent


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
        ingest = Ingest(log, catalog, hints, measures, storage_of(settings), registry, topics.retries())
        group = f"{settings.topic_prefix}.ingest"
        reads = [
            consume(
                reading_of(settings, topics.events, group),
                ingest,
                log,
                stop,
                when_assigned(on_ready, "ingest"),
                measures,
            )
        ]
        for topic in topics.retries():  # nobody waits for those: it is ready without them
            reading = replace(
                reading_of(settings, topic, f"{group}.{topic}", IDLE_FETCH_WAIT), idle_fetch_wait=LONG_FETCH_WAIT
            )
            hear = when_assigned(nobody, "ingest")
            reads.append(consume(reading, Retries(ingest), log, stop, hear, measures))
        await _all_until_one_ends(reads, stop)
        await log.aclose()


async def _all_until_one_ends(reads: Sequence[Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """One that fails stops the others, and is raised."""
    tasks = [asyncio.create_task(read) for read in reads]
    for task in tasks:
        task.add_done_callback(lambda _: stop.set())
    await asyncio.gather(*tasks)


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
