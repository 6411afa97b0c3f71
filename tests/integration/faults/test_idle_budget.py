"""An installation in which nothing happens asks little of Postgres (case E09): under 300 transactions a minute."""

import asyncio
import time

import psycopg
import pytest

from ops.local import LocalOptions, LocalStack
from ops.local.stack import LOG_DATABASE

BUDGET = 300.0  # a minute, of all five roles
START_SECONDS, WINDOW_SECONDS = 5.0, 20.0
COUNTED = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"


async def transactions(dsn: str) -> int:
    """Counted from another database, so that the question is not among them."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        row = await (await conn.execute(COUNTED, (LOG_DATABASE,))).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.kafka
@pytest.mark.timeout(240)
async def test_e09_all_roles_idle_stay_within_the_budget() -> None:
    async with LocalStack(LocalOptions()) as stack:
        await asyncio.sleep(START_SECONDS)  # what a start asks is not idleness
        before, began = await transactions(stack.servers.postgres_dsn), time.monotonic()
        await asyncio.sleep(WINDOW_SECONDS)  # the measured time itself
        after, ended = await transactions(stack.servers.postgres_dsn), time.monotonic()
    a_minute = (after - before) * 60 / (ended - began)
    assert 30 < a_minute < BUDGET, f"{a_minute:.0f} transactions a minute"
