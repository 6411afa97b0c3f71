"""A gateway with its pools as the service opens them, on any address of Postgres."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.dead_letters import PostgresDeadLetters
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.projects import PostgresProjects
from processors.adapters.postgres.redrives import PostgresRedrives
from processors.adapters.postgres.run_queries import PostgresRunQueries
from processors.adapters.postgres.taken_events import PostgresTakenEvents
from processors.adapters.postgres.tokens import PostgresTokens
from processors.adapters.postgres.wakeups import Notifier
from processors.gateway.app import build_app
from processors.gateway.limits import Limits
from processors.gateway.server import serve
from tests.integration.gateway.conftest import MASTER_KEY, PROJECT, WORKFLOW, Gateway


@asynccontextmanager
async def open_gateway(dsn: str, *, patience: float) -> AsyncIterator[Gateway]:
    """With the workflow `wf_invoice_settle` published."""
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(dsn, "gateway", patience=2.0))
        quick = await stack.enter_async_context(open_pool(dsn, "gateway-doors", size=3, patience=patience))
        notifier = Notifier(dsn)
        stack.push_async_callback(notifier.aclose)
        door = PostgresDoor(dsn, "a44.events.v1", notifier, lambda _: None, patience=patience)
        await door.open()
        stack.push_async_callback(door.aclose)
        tokens = PostgresTokens(quick)
        catalog = PostgresCatalog(quick)
        app = build_app(
            door,
            catalog,
            PostgresRunQueries(pool, quick),
            tokens,
            PostgresDeadLetters(pool),
            PostgresRedrives(pool),
            PostgresProjects(quick),
            PostgresTakenEvents(pool),
            MASTER_KEY,
            Limits(),
        )
        site = await serve(app, "127.0.0.1", 0)
        stack.push_async_callback(site.stop)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        token = await tokens.create_token(PROJECT, "tests", ["automation:write"])
        gateway = Gateway(site.url, dsn, session, token, tokens)
        answer = await gateway.publish({"settle.yaml": WORKFLOW})
        assert answer.status == 200, answer.body
        yield gateway
