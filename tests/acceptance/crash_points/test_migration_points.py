"""`a44 migrate` is killed before a migration's commit: nothing of it is there, and the next try does all of it."""

import asyncio
import os
import signal
import sys

import psycopg
import pytest

from processors.adapters.postgres.migrations import shipped

APPLIED = "select name from public.automation_migrations order by number"


async def migrated(dsn: str, **environment: str) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli", "migrate"),
        env={**os.environ, "A44_POSTGRES_DSN": dsn, **environment},
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def applied(dsn: str) -> list[str]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        return [name for (name,) in await (await conn.execute(APPLIED)).fetchall()]


@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_in_migration_before_commit(database: str) -> None:
    names = [one.name for one in shipped()]
    first = await migrated(database, A44_CRASH_POINT="in_migration_before_commit")
    assert (first, await applied(database)) == (-signal.SIGKILL, [])
    last = await migrated(database, A44_CRASH_POINT=f"in_migration_before_commit:{len(names)}")
    assert (last, await applied(database)) == (-signal.SIGKILL, names[:-1])
    assert (await migrated(database), await applied(database)) == (0, names)
    assert (await migrated(database), await applied(database)) == (0, names)
