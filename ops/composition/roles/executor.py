"""The executor: claims runs and brings them on, step by step."""

import asyncio
from collections.abc import Sequence

from ops.composition.bodies import open_bodies
from ops.composition.roles.parts import OnReady, topics_of
from ops.composition.roles.reading import IDLE_FETCH_WAIT, consume, nobody, reading_of, when_assigned
from ops.settings import Settings
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.wakeups import Channel, Notifier, listen
from processors.executor.executor import Executor
from processors.ports.measures import Measures
from processors.ports.streams import Record
from schemas.commands import StepCommand, decode_commands


async def run(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    topics = topics_of(settings)
    journal = PostgresJournal(settings.postgres_dsn, settings.owner, settings.lease_seconds, topics.dead_letters)
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
        reading = reading_of(settings, topics.commands, f"{settings.topic_prefix}.executors", IDLE_FETCH_WAIT)
        hear = when_assigned(nobody, "executor")  # commands are hints: it is ready without them
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


async def _tell_when(event: asyncio.Event, on_ready: OnReady, role: str) -> None:
    await event.wait()
    on_ready(role, {})
