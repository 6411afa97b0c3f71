"""Ingest: from the events topic to runs in their lanes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
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
from processors.ingest.retries import Retries, until_unread
from processors.ports.measures import Measures
from processors.ports.schemas import Schemas
from processors.runtime.current_catalog import CurrentCatalog

# Seconds, of topics on which nothing is due within ten: what waits for a record costs nearly nothing then.
UNHURRIED: Mapping[str, Any] = {
    "idle_fetch_wait": 2.0,
    "metadata_max_age": 15.0,
    "stall_seconds": 120.0,
}


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
        storage = storage_of(settings)
        ingest = Ingest(log, catalog, hints, measures, storage, registry, topics.retries())
        group = f"{settings.topic_prefix}.ingest"
        hear = when_assigned(on_ready, "ingest")  # nobody waits for retry topics: it is ready without them
        reads = [consume(reading_of(settings, topics.events, group), ingest, log, stop, hear, measures)]
        may_put_off = storage is not None or registry is not None
        reads.append(_read_retries(settings, log, ingest, stop, measures, at_once=may_put_off))
        await _all_until_one_ends(reads, stop)
        await log.aclose()


async def _read_retries(
    settings: Settings,
    log: PostgresIngestLog,
    ingest: Ingest,
    stop: asyncio.Event,
    measures: Measures,
    *,
    at_once: bool,
) -> None:
    """Where there is nothing that could be away, nothing is put off, and three consumers would wait in vain: then only
    what an earlier configuration left there is read, if there is any.
    """
    topics = topics_of(settings).retries()
    if not at_once:
        await until_unread(lambda: log.is_unread(topics), stop)
    group = f"{settings.topic_prefix}.ingest"
    readings = [
        replace(reading_of(settings, topic, f"{group}.{topic}", IDLE_FETCH_WAIT), **UNHURRIED) for topic in topics
    ]
    hear = when_assigned(nobody, "ingest")
    await asyncio.gather(*(consume(one, Retries(ingest), log, stop, hear, measures) for one in readings))


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
