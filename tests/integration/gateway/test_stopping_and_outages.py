"""The gateway when it stops, and when Postgres is away: everybody is told, nobody waits in vain."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

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
from processors.gateway.problems import answer_errors
from processors.gateway.server import RunningSite, serve
from schemas.errors import AutomationError, Broken, Unavailable
from tests.integration.gateway.conftest import MASTER_KEY, PROJECT, WORKFLOW


@asynccontextmanager
async def _site(dsn: str) -> AsyncIterator[tuple[RunningSite, str, PostgresCatalog]]:
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(dsn, "gateway"))
        notifier = Notifier(dsn)
        stack.push_async_callback(notifier.aclose)
        door = PostgresDoor(dsn, "a44.events.v1", notifier, lambda _: None)
        await door.open()
        stack.push_async_callback(door.aclose)
        tokens, catalog = PostgresTokens(pool), PostgresCatalog(pool)
        token = await tokens.create_token(PROJECT, "tests", ["automation:write"])
        app = build_app(
            door,
            catalog,
            PostgresRunQueries(pool),
            tokens,
            PostgresDeadLetters(pool),
            PostgresRedrives(pool),
            PostgresProjects(pool),
            PostgresTakenEvents(pool),
            MASTER_KEY,
            Limits(),
        )
        site = await serve(app, "127.0.0.1", 0)
        stack.push_async_callback(site.stop)
        yield site, token, catalog


async def test_stopping_tells_those_who_follow_or_wait_and_takes_no_longer_than_its_grace(
    migrated_database: str,
) -> None:
    async with _site(migrated_database) as (site, token, catalog), aiohttp.ClientSession() as session:
        await catalog.publish(PROJECT, {"settle.yaml": WORKFLOW}, dev=False, actor="test")
        headers = {"Authorization": f"Bearer {token}", "A44-Idempotency-Key": "k1"}
        runs = f"{site.url}/v1/automation/workflows/wf_invoice_settle/runs"
        async with session.post(runs, json={}, headers=headers) as response:
            made = (await response.json())["run_id"]
        following = await session.get(f"{site.url}/v1/automation/runs/{made}/log", headers=headers)
        live = {**headers, "Accept": "text/event-stream"}
        tailing = await session.get(f"{site.url}/v1/automation/events", headers=live)
        waiting = asyncio.create_task(_post(session, f"{runs}?wait=60", headers))
        async with session.get(f"{site.url}/healthz") as response:
            assert response.status == 200
        began = time.monotonic()
        await site.stop()
        assert time.monotonic() - began < 10
        for told in (await following.text(), await tailing.text()):
            assert "event: error" in told
            assert "E_SHUTTING_DOWN" in told
        status, code = await waiting
        assert (status, code) == (200, "deduplicated")
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{site.url}/healthz")


async def _post(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> tuple[int, str]:
    async with session.post(url, json={}, headers=headers) as response:
        document = await response.json(content_type=None)
        return response.status, document["status"] if response.ok else ""


async def test_a_database_that_is_away_is_named_as_such_within_seconds(unused_tcp_port: int) -> None:
    dsn = f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/nothing"
    async with open_pool(dsn, "test") as pool:
        with pytest.raises(Unavailable, match="E_UNAVAILABLE"):
            await PostgresCatalog(pool).version()
        with pytest.raises(Unavailable, match="E_UNAVAILABLE"):
            await PostgresRunQueries(pool).check_ready()


async def test_a_publication_is_in_force_for_the_very_next_request(migrated_database: str) -> None:
    async with _site(migrated_database) as (site, token, catalog), aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {token}"}
        for version in range(1, 8):
            text = WORKFLOW.replace("version: 1", f"version: {version}")
            await catalog.publish(PROJECT, {"settle.yaml": text}, dev=False, actor="test")
            async with session.get(f"{site.url}/v1/automation/workflows", headers=headers) as response:
                assert [one["version"] for one in await response.json()] == [str(version)]


async def test_the_doors_decide_by_what_was_published_last_however_old_their_own_catalog_is(
    migrated_database: str,
) -> None:
    async with _site(migrated_database) as (site, token, catalog), aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {token}"}
        runs = f"{site.url}/v1/automation/workflows/wf_invoice_settle/runs"
        assert await _post(session, runs, headers | {"A44-Idempotency-Key": "k0"}) == (404, "")
        for version in range(1, 4):
            text = WORKFLOW.replace("version: 1", f"version: {version}")
            await catalog.publish(PROJECT, {"settle.yaml": text}, dev=False, actor="test")
            key = {"A44-Idempotency-Key": f"k{version}"}
            assert await _post(session, runs, headers | key) == (202, "created")
            async with session.get(f"{site.url}/v1/automation/runs?limit=1", headers=headers) as response:
                assert [run["version"] for run in (await response.json())["runs"]] == [str(version)]


@pytest.mark.parametrize(("kind", "status"), [(Unavailable, 503), (Broken, 500)])
async def test_what_a_driver_says_is_logged_and_not_told(kind: type[AutomationError], status: int) -> None:
    async def ask(_: web.Request) -> web.StreamResponse:
        said = OSError("connection to server at 10.0.0.5, port 5432 failed")
        code = "E_UNAVAILABLE" if kind is Unavailable else "E_INTERNAL"
        raise kind(code, f"Postgres does not answer: {said}") from said

    app = web.Application(middlewares=[answer_errors])
    app.router.add_get("/", ask)
    site = await serve(app, "127.0.0.1", 0)
    with capture_logs() as logs:
        async with aiohttp.ClientSession() as session, session.get(site.url) as response:
            text = await response.text()
    await site.stop()
    assert response.status == status
    assert "10.0.0.5" not in text
    assert response.headers["A44-Request-Id"] == logs[0]["request_id"]
    assert "10.0.0.5" in str(logs[0])
