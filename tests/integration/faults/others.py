"""What somebody else does on the same database while the service works."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from tests.integration.log.lab import Lab


@asynccontextmanager
async def transaction(lab: Lab, *statements: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Somebody's transaction, open while the block runs, and then rolled back."""
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        for statement in statements:
            await conn.execute(statement.encode())
        yield conn
        await conn.rollback()
