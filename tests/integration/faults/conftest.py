"""A lab on a database of its own: these tests take partitions away, hold locks and stop servers."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.log.lab import Lab, open_lab


@pytest_asyncio.fixture
async def lab(migrated_database: str) -> AsyncIterator[Lab]:
    async with open_lab(migrated_database) as opened:
        yield opened
