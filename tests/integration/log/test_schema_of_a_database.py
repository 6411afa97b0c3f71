"""A role starts on its own version's schema only, and says what to do before anything else."""

import asyncio
import os
import sys

import psycopg
import pytest

from processors.adapters.postgres.migrations import check_schema, migrate
from schemas.errors import Refused


async def test_a_database_that_was_never_migrated_is_told_apart(database: str) -> None:
    with pytest.raises(Refused, match="holds no schema yet; run a44 migrate first") as caught:
        await check_schema(database)
    assert caught.value.code == "E_MIGRATION"


async def test_a_schema_that_lacks_a_migration_is_named_and_a_whole_one_passes(migrated_database: str) -> None:
    await check_schema(migrated_database)
    assert await migrate(migrated_database) == []
    async with await psycopg.AsyncConnection.connect(migrated_database, autocommit=True) as conn:
        await conn.execute("delete from public.automation_migrations where number = 2")
    with pytest.raises(Refused, match=r"lacks 0002_pre_liveness\.sql; run a44 migrate first"):
        await check_schema(migrated_database)


async def test_a_role_on_an_empty_database_ends_with_the_code_and_the_way_out(database: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli", "up", "--roles", "scheduler"),
        env={**os.environ, "A44_POSTGRES_DSN": database},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 5, said
    assert b"E_MIGRATION" in said
    assert b"run a44 migrate first" in said
    assert b"Traceback" not in said
