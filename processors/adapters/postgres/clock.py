"""The database's clock, carried on by this process's monotonic clock between two answers.

Leases, timers and ids follow the database; the wall clock of a worker decides nothing.
"""

import time
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.statements import statements
from schemas.errors import Unavailable


class DatabaseClock:
    """`now()` is an aware UTC datetime. Before the first `sync` there is no time to tell."""

    def __init__(self) -> None:
        self._seen: datetime | None = None
        self._at = 0.0

    def now(self) -> datetime:
        if self._seen is None:
            raise RuntimeError("the database's clock was not read yet")
        return self._seen + timedelta(seconds=time.monotonic() - self._at)

    def observe(self, told: datetime) -> None:
        """Take over a time that the database has just told; never lets `now()` step back."""
        at = time.monotonic()
        told = told.astimezone(UTC)
        if self._seen is None or told >= self._seen + timedelta(seconds=at - self._at):
            self._seen, self._at = told, at

    async def sync(self, conn: AsyncConnection[TupleRow]) -> datetime:
        """Read the clock over a connection; half the way there and back is at most the error. Raises `Unavailable`."""
        before = time.monotonic()
        try:
            row = await (await conn.execute(statements("door")["clock"])).fetchone()
        except psycopg.Error as exc:
            await conn.close()
            raise Unavailable("E_UNAVAILABLE", f"Postgres told no time: {str(exc).strip()}") from exc
        if row is None:
            raise RuntimeError("Postgres told no time")
        self._seen, self._at = row[0].astimezone(UTC), (before + time.monotonic()) / 2
        return self.now()
