"""A lab for each test, on one database that is emptied in between: making one takes longer than most tests."""

from collections.abc import AsyncIterator

import pytest_asyncio

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.redrives import PostgresRedrives
from tests.integration.log.lab import EVENTS, PROJECT, Lab, empty, open_lab
from tests.integration.log.polls import FILTERED, FLOW, RECENT, SEAL_KEY, SORTED, WATCHED, Stage
from tests.integration.log.yard import Yard
from tests.support.databases import fresh_database


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def log_database(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[str]:
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def lab(log_database: str) -> AsyncIterator[Lab]:
    await empty(log_database)
    async with open_lab(log_database) as opened:
        yield opened


@pytest_asyncio.fixture
async def stage(lab: Lab) -> AsyncIterator[Stage]:
    async with open_pool(lab.dsn, "test") as pool:
        catalog = PostgresCatalog(pool)
        flows = {
            "orders.yaml": FLOW,
            "large.yaml": FILTERED,
            "sorted.yaml": SORTED,
            "recent.yaml": RECENT,
            "watched.yaml": WATCHED,
        }
        await lab.rows("update automation.installation set seal_key = %s", SEAL_KEY)
        await catalog.publish(PROJECT, flows, dev=False, actor="test")
        made = Stage(lab, await lab.ingest_log(), catalog)
        assert await made.log.positions(EVENTS, "topic-1", [0, 1]) == {}
        yield made


@pytest_asyncio.fixture
async def yard(stage: Stage) -> AsyncIterator[Yard]:
    async with open_pool(stage.lab.dsn, "redrives", hot=True) as pool:
        yield Yard(stage, PostgresRedrives(pool))
