"""Executors with scripted bodies on the real log, and a scheduler where a test wants one."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.executor.works import Works
from tests.integration.log.lab import empty, open_lab
from tests.support.databases import fresh_database


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def executor_database(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[str]:
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def works(executor_database: str) -> AsyncIterator[Works]:
    await empty(executor_database)
    async with open_lab(executor_database) as lab:
        made = Works(lab)
        yield made
        await made.aclose()
