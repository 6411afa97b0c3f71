"""Topics that are held while they get more partitions, so that every key keeps its order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from schemas.errors import Unavailable


class HeldTopics:
    """A hold ends by itself, so that nothing stands still for long when whoever asked for it dies."""

    def __init__(self, conn: AsyncConnection[TupleRow]) -> None:
        self._conn = conn
        self._sql = statements("topology")

    async def hold(self, topic: str, seconds: float) -> None:
        await self._execute("hold_topic", {"topic": topic, "seconds": seconds})

    async def let_go(self, topic: str) -> None:
        await self._execute("let_go", {"topic": topic})

    async def unread(self, topic: str) -> int:
        """How many of the relay's records ingest has still to read."""
        row = await (await self._execute("unread_numbers", {"topic": topic})).fetchone()
        return int(row[0]) if row else 0

    async def _execute(self, name: str, asked: dict[str, object]) -> psycopg.AsyncCursor[TupleRow]:
        try:
            return await self._conn.execute(self._sql[name], asked)
        except psycopg.OperationalError as exc:
            raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer: {str(exc).strip()}") from exc


@asynccontextmanager
async def open_held_topics(dsn: str) -> AsyncIterator[HeldTopics]:
    conn = await connect(dsn, "topology")
    async with conn:
        yield HeldTopics(conn)
