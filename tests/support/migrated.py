"""One migrated database per session, from which tests copy their own in a few milliseconds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from processors.adapters.postgres.migrations import migrate
from tests.support.databases import fresh_database


@asynccontextmanager
async def migrated_template(admin_dsn: str) -> AsyncIterator[str]:
    """Name of a database with this version's schema and nobody connected to it."""
    async with fresh_database(admin_dsn) as dsn:
        await migrate(dsn)
        yield dsn.rpartition("/")[2]
