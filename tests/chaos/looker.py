"""Reads the log on a connection of its own, and asks again while Postgres is away."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg

PATIENCE_SECONDS = 90.0
PAUSE_SECONDS = 0.1


class Looker:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()

    async def rows(self, text: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Raises TimeoutError when Postgres stays away."""
        async with self._lock, asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    if self._conn is None or self._conn.closed:
                        self._conn = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
                    return await (await self._conn.execute(text.encode(), params or None)).fetchall()
                except psycopg.OperationalError:
                    await self.close()
                    await asyncio.sleep(PAUSE_SECONDS)

    async def one(self, text: str, params: Sequence[object] = ()) -> Any:
        return (await self.rows(text, params))[0][0]

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None
