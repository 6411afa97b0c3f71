"""What several roles are put together from: their topics, wake-ups and hints."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ops.composition.hints import CommandHints
from ops.settings import Settings
from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.postgres.wakeups import Notifier
from processors.ports.measures import Measures
from topology.topics import Topics, TopicSpec

OnReady = Callable[[str, Mapping[str, object]], None]
RoleRunner = Callable[[Settings, asyncio.Event, OnReady, Measures], Coroutine[Any, Any, None]]
HOUR_SECONDS = 3600.0


def topics_of(settings: Settings) -> Topics:
    return Topics(settings.topic_prefix)


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """The topics of this installation, with the partitions that the settings ask for where work is spread."""
    topics = topics_of(settings)
    spread = {topics.events, topics.commands, topics.run_events}
    return [
        TopicSpec(spec.name, settings.partitions, spec.retention_ms, spec.max_record_bytes)
        if spec.name in spread
        else spec
        for spec in topics.all()
    ]


@asynccontextmanager
async def open_notifier(settings: Settings) -> AsyncIterator[Notifier]:
    notifier = Notifier(settings.postgres_dsn)
    try:
        yield notifier
    finally:
        await notifier.aclose()


@asynccontextmanager
async def open_hints(settings: Settings) -> AsyncIterator[CommandHints]:
    producer = KafkaProducer(settings.kafka_bootstrap, f"{settings.owner}-hints") if settings.kafka_bootstrap else None
    async with open_notifier(settings) as notifier:
        try:
            yield CommandHints(topics_of(settings).commands, notifier, producer)
        finally:
            if producer is not None:
                await producer.aclose()
