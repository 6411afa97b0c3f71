"""A long transaction of our own role holds rows up and is measured; one of anybody else changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from tests.integration.relay.conftest import Outbox, Stage, stranger
from tests.support.databases import fresh_database
from tests.support.waiting import until

SOAK_ROWS = 300


@asynccontextmanager
async def rows_all_along(stage: Stage) -> AsyncIterator[list[int]]:
    """Quick transactions that do not stop; answers how many there were."""
    written = [0]

    async def write_on(outbox: Outbox) -> None:
        while written[0] < SOAK_ROWS:
            await outbox.put(f"quick-{written[0]}", key=f"key-{written[0] % 7}")
            written[0] += 1
            await asyncio.sleep(0.003)

    async with stage.writer() as outbox:
        writing = asyncio.create_task(write_on(outbox))
        try:
            yield written
        finally:
            await writing


@pytest.mark.timeout(180)
async def test_e01_rows_behind_an_open_transaction_wait_and_its_age_is_measured(stage: Stage) -> None:
    measures = stage.measures
    async with stage.relay(), stage.writer() as slow:
        async with slow.conn.transaction():
            await slow.put("slow-first")
            async with rows_all_along(stage):
                await until(lambda: measures.value("outbox_horizon_age_seconds") > 2, "the age of the horizon grows")
                await until(lambda: measures.value("outbox_lag_rows") > 1, "rows wait behind it")
                await until(lambda: measures.value("outbox_oldest_unsent_seconds") > 1, "the oldest of them waits long")
                assert await stage.published() == []
            await slow.put("slow-last")
        quick = [f"quick-{n}" for n in range(SOAK_ROWS)]
        records = await stage.until_published("slow-first", "slow-last", *quick, seconds=60)
        await until(lambda: measures.value("outbox_horizon_age_seconds") == 0, "the horizon is free")
        await until(lambda: measures.value("outbox_lag_rows") == 0, "nothing waits")
        assert measures.value("outbox_oldest_unsent_seconds") == 0
        assert measures.value("relay_published_total") == SOAK_ROWS + 2
    assert len(records) == SOAK_ROWS + 2
    assert [record.value for record in records if record.key == "k"] == ["slow-first", "slow-last"]


async def test_a_long_transaction_of_another_role_changes_nothing(stage: Stage) -> None:
    async with (
        stage.writer() as outbox,
        stranger(outbox.conn, stage.dsn) as dsn,
        await psycopg.AsyncConnection.connect(dsn) as foreign,
        stage.relay(),
    ):
        await foreign.execute("select pg_current_xact_id()")
        await check_free(stage, outbox)


async def test_a_long_transaction_in_another_database_changes_nothing(stage: Stage, postgres_dsn: str) -> None:
    async with (
        fresh_database(postgres_dsn) as elsewhere,
        await psycopg.AsyncConnection.connect(elsewhere) as foreign,
        stage.writer() as outbox,
        stage.relay(),
    ):
        await foreign.execute("select pg_current_xact_id()")
        await check_free(stage, outbox)


async def test_a_long_look_of_our_own_role_changes_nothing(stage: Stage) -> None:
    async with (
        await psycopg.AsyncConnection.connect(stage.dsn) as reader,
        stage.writer() as outbox,
        stage.relay(),
    ):
        await reader.execute("set transaction isolation level repeatable read")
        await reader.execute("select count(*) from automation.outbox")
        await check_free(stage, outbox)


async def check_free(stage: Stage, outbox: Outbox) -> None:
    await outbox.put("a", "b")
    await outbox.wake()
    records = await stage.until_published("a", "b")
    assert [record.value for record in records] == ["a", "b"]
    await look_passes(outbox)
    await look_passes(outbox)
    assert stage.measures.value("outbox_horizon_age_seconds") == 0


async def look_passes(outbox: Outbox) -> None:
    before = await outbox.value("select lease_until from automation.relay_shards")

    async def renewed() -> bool:
        return bool(await outbox.value("select lease_until from automation.relay_shards") != before)

    await until(renewed, "the relay has looked")
