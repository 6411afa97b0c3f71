"""A database with the product's schema for one measurement, on servers that run already; gone afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import AsyncConnection, sql

from ops.embedded import EmbeddedStack
from processors.adapters.postgres.migrations import migrate


@asynccontextmanager
async def own_database(servers: EmbeddedStack) -> AsyncIterator[str]:
    """Its address."""
    name = f"bench_{secrets.token_hex(4)}"
    dsn = await servers.create_database(name, secrets.token_urlsafe(16))
    await migrate(dsn)
    try:
        yield dsn
    finally:
        async with await AsyncConnection.connect(servers.postgres_dsn, autocommit=True) as conn:
            await conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
