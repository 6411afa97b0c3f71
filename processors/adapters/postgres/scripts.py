"""A user's SQL against a user's database: what a project's owner does with psql, for the demo and scaffolds."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection


async def run_script(dsn: str, text: str) -> None:
    """Execute the statements of a script in one go."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute(text.encode())


async def query(dsn: str, text: str) -> Sequence[tuple[Any, ...]]:
    """The rows of one statement."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        return await (await conn.execute(text.encode())).fetchall()
