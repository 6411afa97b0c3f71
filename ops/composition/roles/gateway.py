"""The gateway: its doors on HTTP, before Postgres alone."""

import asyncio

from ops.composition.files import within_files
from ops.composition.hints import CommandHints
from ops.composition.roles.parts import HOUR_SECONDS, OnReady, open_notifier, topics_of
from ops.composition.storage import storage_of
from ops.secrets import SecretStore
from ops.settings import Settings
from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.dead_letters import PostgresDeadLetters
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.projects import PostgresProjects
from processors.adapters.postgres.redrives import PostgresRedrives
from processors.adapters.postgres.run_queries import PostgresRunQueries
from processors.adapters.postgres.taken_events import PostgresTakenEvents
from processors.adapters.postgres.tokens import PostgresTokens
from processors.adapters.postgres.wakeups import Channel, listen
from processors.gateway.app import ENDS, build_app
from processors.gateway.limits import Limits
from processors.gateway.server import serve
from processors.ports.measures import Measures


def limits_of(settings: Settings) -> Limits:
    """What the settings allow; connections no more than this process may have files."""
    return Limits(
        bodies=settings.gateway_bodies_mb * 1_000_000,
        queued=settings.gateway_queued_requests,
        header_seconds=settings.gateway_header_seconds,
        body_seconds=settings.gateway_body_seconds,
        idle_seconds=settings.gateway_idle_seconds,
        connections=within_files(settings.gateway_connections),
        connections_per_address=settings.gateway_connections_per_address,
        trusted_proxies=settings.proxies(),
        dedup_window=settings.dedup_window_hours * HOUR_SECONDS,
        redrive_rate=settings.redrive_rate,
    )


async def run(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    limits = limits_of(settings)
    dsn = settings.postgres_dsn
    async with (
        open_pool(dsn, "gateway", patience=2.0) as pool,
        open_pool(dsn, "gateway-doors", size=3, hot=True) as quick,  # lists and logs do not stand in front of the doors
        open_notifier(settings) as notifier,
    ):
        # Whoever waits for a run by hand is served by the wake-up; a command would come when the run is half over.
        hints = CommandHints(topics_of(settings).commands, notifier, None)
        door = PostgresDoor(
            settings.postgres_dsn,
            topics_of(settings).events,
            notifier,
            hints.granted,
            queued=limits.queued,
        )
        await door.open()
        app = build_app(
            door,
            PostgresCatalog(quick),
            PostgresRunQueries(pool, quick),
            PostgresTokens(quick),
            PostgresDeadLetters(pool),
            PostgresRedrives(pool),
            PostgresProjects(quick),
            PostgresTakenEvents(pool),
            settings.master_key_bytes(),
            limits,
            measures,
            storage_of(settings),
            SecretStore(settings.secrets_file),
        )
        listening = asyncio.create_task(listen(settings.postgres_dsn, {Channel.ENDED: app[ENDS].hurry}, stop, measures))
        site = await serve(app, settings.gateway_host, settings.gateway_port, limits)
        on_ready("gateway", {"url": site.url})
        await stop.wait()
        await site.stop()
        await listening
        await door.aclose()
