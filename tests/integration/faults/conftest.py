"""A lab for each test, on one database that is emptied in between: making one takes longer than most tests."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.log.lab import Lab, empty, open_lab
from tests.support.databases import fresh_database


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def faults_database(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[str]:
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def lab(faults_database: str) -> AsyncIterator[Lab]:
    await empty(faults_database)
    async with open_lab(faults_database) as opened:
        yield opened
