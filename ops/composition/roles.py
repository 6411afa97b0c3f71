"""Each role from its settings: the only place that knows which adapter stands behind which port."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import structlog

from ops.composition.bodies import open_bodies
from ops.composition.hints import CommandHints
from ops.composition.storage import storage_of
from ops.secrets import SecretStore
from ops.settings import Settings
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.consumer import FETCH_WAIT, IDLE_FETCH_WAIT, ConsumerSettings, consume
from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.kafka.registry import SchemaRegistry
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.dead_letters import PostgresDeadLetters
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.projects import PostgresProjects
from processors.adapters.postgres.redrives import PostgresRedrives
from processors.adapters.postgres.relay_store import open_relay_store
from processors.adapters.postgres.run_queries import PostgresRunQueries
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.adapters.postgres.tokens import PostgresTokens
from processors.adapters.postgres.wakeups import Channel, Notifier, listen
from processors.executor.executor import Executor
from processors.gateway.app import ENDS, build_app
from processors.gateway.limits import Limits
from processors.gateway.server import serve
from processors.ingest.ingest import Ingest
from processors.ports.measures import Measures
from processors.ports.streams import ConsumerState, Phase, Record
from processors.relay.relay import run_relay
from processors.runtime.current_catalog import CurrentCatalog
from processors.scheduler.redriver import Redriver
from processors.scheduler.scheduler import Scheduler
from processors.scheduler.sweep_of_bodies import run_sweep
from schemas.commands import StepCommand, decode_commands
from topology.topics import Topics, TopicSpec

_log = structlog.get_logger("roles")
OnReady = Callable[[str, Mapping[str, object]], None]
RoleRunner = Callable[[Settings, asyncio.Event, OnReady, Measures], Coroutine[Any, Any, None]]
HOUR_SECONDS = 3600.0


async def _gateway(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    window = settings.dedup_window_hours * HOUR_SECONDS
    dsn = settings.postgres_dsn
    async with (
        open_pool(dsn, "gateway", patience=2.0) as pool,
        open_pool(dsn, "gateway-doors", size=3, hot=True) as quick,  # lists and logs do not stand in front of the doors
        _notifier(settings) as notifier,
    ):
        # Whoever waits for a run by hand is served by the wake-up; a command would come when the run is half over.
        hints = CommandHints(_topics(settings).commands, notifier, None)
        door = PostgresDoor(settings.postgres_dsn, _topics(settings).events, notifier, hints.granted)
        await door.open()
        app = build_app(
            door,
            PostgresCatalog(quick),
            PostgresRunQueries(pool, quick),
            PostgresTokens(quick),
            PostgresDeadLetters(pool),
            PostgresRedrives(pool),
            settings.master_key_bytes(),
            Limits(dedup_window=window, redrive_rate=settings.redrive_rate),
            measures,
            storage_of(settings),
            SecretStore(settings.secrets_file),
            PostgresProjects(quick).rates,
        )
        listening = asyncio.create_task(listen(settings.postgres_dsn, {Channel.ENDED: app[ENDS].hurry}, stop, measures))
        site = await serve(app, settings.gateway_host, settings.gateway_port)
        on_ready("gateway", {"url": site.url})
        await stop.wait()
        await site.stop()
        await listening
        await door.aclose()


async def _relay(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    admin = KafkaAdmin(settings.kafka_bootstrap, f"{settings.owner}-relay-admin")
    specs = topic_specs(settings)
    async with open_relay_store(settings.postgres_dsn, measures=measures) as store:
        # Nothing is under way any more when another relay may begin: see run_relay.
        producer = KafkaProducer(settings.kafka_bootstrap, f"{settings.owner}-relay", message_timeout=store.lease / 2)
        try:
            await admin.ensure_topics(specs)
            on_ready("relay", {})
            await run_relay(store, producer, admin, settings.owner, stop, specs=specs, measures=measures)
        finally:
            await producer.aclose()


async def _ingest(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    topics = _topics(settings)
    log = PostgresIngestLog(settings.postgres_dsn, topics.dead_letters, settings.dedup_window_hours * HOUR_SECONDS)
    async with open_pool(settings.postgres_dsn, "ingest", size=1) as pool, _hints(settings) as hints:
        await log.open()
        registry = SchemaRegistry(settings.schema_registry_url) if settings.schema_registry_url else None
        catalog = CurrentCatalog(PostgresCatalog(pool))
        ingest = Ingest(log, catalog, hints, measures, storage_of(settings), registry)
        reading = _consumer(settings, topics.events, f"{settings.topic_prefix}.ingest")
        await consume(reading, ingest, log, stop, _when_assigned(on_ready, "ingest"), measures)
        await log.aclose()
        if registry is not None:
            registry.close()


async def _scheduler(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    schedule = PostgresSchedule(settings.postgres_dsn, measures, outbox_days=settings.outbox_retention_days)
    async with (
        open_pool(settings.postgres_dsn, "scheduler-redrives", size=1, hot=True) as pool,
        _hints(settings) as hints,
    ):
        redriver = Redriver(PostgresRedrives(pool), CurrentCatalog(PostgresCatalog(pool)), measures)
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


async def _executor(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    topics = _topics(settings)
    journal = PostgresJournal(settings.postgres_dsn, settings.owner, settings.lease_seconds)
    notifier = Notifier(settings.postgres_dsn)

    def tell() -> None:
        notifier.wake(Channel.OUTBOX)
        notifier.wake(Channel.ENDED)

    async with open_pool(settings.postgres_dsn, "executor-catalog", size=2) as pool:
        catalog = PostgresCatalog(pool)

        kinds: dict[int, str] = {}

        async def kind_of(definition_id: int) -> str:
            # Definitions are immutable; one question a claim would be most of an executor's time.
            if definition_id not in kinds:
                kinds[definition_id] = (await catalog.definition(definition_id)).kind
            return kinds[definition_id]

        slots, lease = settings.executor_slots, settings.lease_seconds
        executor = Executor(journal, kind_of, topics.run_events, slots, lease, tell, measures)

        async def take_commands(records: Sequence[Record]) -> None:
            told = decode_commands([record.value for record in records])
            executor.hint([(one.run_id, one.fence) for one in told if isinstance(one, StepCommand)])

        wakes = {Channel.GRANTED: executor.look_for_granted, Channel.MAIL: executor.look_for_mail}
        reading = _consumer(settings, topics.commands, f"{settings.topic_prefix}.executors", IDLE_FETCH_WAIT)
        hear = _when_assigned(_nobody, "executor")  # commands are hints: it is ready without them
        async with open_bodies(settings, catalog, executor.listener, measures) as bodies:
            executor.attach(bodies)
            beside = [
                asyncio.create_task(listen(settings.postgres_dsn, wakes, stop, measures)),
                asyncio.create_task(consume(reading, take_commands, None, stop, hear, measures)),
            ]
            for task in beside:
                task.add_done_callback(lambda _: stop.set())  # one that failed stops the role, and is raised below
            telling = asyncio.create_task(_tell_when(executor.opened, on_ready, "executor"))
            await executor.run(stop)
            telling.cancel()
            await asyncio.gather(*beside)
    await notifier.aclose()


ROLE_RUNNERS: Mapping[str, RoleRunner] = {
    "gateway": _gateway,
    "relay": _relay,
    "ingest": _ingest,
    "scheduler": _scheduler,
    "executor": _executor,
}


def _topics(settings: Settings) -> Topics:
    return Topics(settings.topic_prefix)


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """The topics of this installation, with the partitions that the settings ask for where work is spread."""
    topics = _topics(settings)
    spread = {topics.events, topics.commands, topics.run_events}
    return [
        TopicSpec(spec.name, settings.partitions, spec.retention_ms, spec.max_record_bytes)
        if spec.name in spread
        else spec
        for spec in topics.all()
    ]


@asynccontextmanager
async def _notifier(settings: Settings) -> AsyncIterator[Notifier]:
    notifier = Notifier(settings.postgres_dsn)
    try:
        yield notifier
    finally:
        await notifier.aclose()


@asynccontextmanager
async def _hints(settings: Settings) -> AsyncIterator[CommandHints]:
    producer = KafkaProducer(settings.kafka_bootstrap, f"{settings.owner}-hints") if settings.kafka_bootstrap else None
    async with _notifier(settings) as notifier:
        try:
            yield CommandHints(_topics(settings).commands, notifier, producer)
        finally:
            if producer is not None:
                await producer.aclose()


def _consumer(settings: Settings, topic: str, group: str, fetch_wait: float = FETCH_WAIT) -> ConsumerSettings:
    client_id = f"{settings.owner}-{group}"
    return ConsumerSettings(settings.kafka_bootstrap, group, topic, client_id, fetch_wait=fetch_wait)


def _nobody(_role: str, _details: Mapping[str, object]) -> None:
    """Nobody waits for it."""


async def _tell_when(event: asyncio.Event, on_ready: OnReady, role: str) -> None:
    await event.wait()
    on_ready(role, {})


def _when_assigned(on_ready: OnReady, role: str) -> Callable[[ConsumerState], None]:
    """Ready when the group has given this process its partitions for the first time; says what it waits for."""
    told, reason = False, ""

    def hear(state: ConsumerState) -> None:
        nonlocal told, reason
        if state.phase is Phase.ASSIGNED:
            reason = ""
            if not told:
                told = True
                on_ready(role, {"partitions": len(state.partitions)})
        elif state.phase is Phase.WAITING and state.reason != reason:
            reason = state.reason
            _log.warning("kafka_waiting", role=role, reason=reason)

    return hear
