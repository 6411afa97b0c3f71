"""Reading what waits costs the same however much was sent before."""

import json

import pytest

from processors.adapters.postgres.relay_store import open_relay_store
from processors.adapters.postgres.statements import statements
from processors.ports.relay import Cursor, Progress
from tests.integration.relay.conftest import Outbox, Stage

SENT, WAITING, BATCH = 300_000, 1_000, 500


async def fill(outbox: Outbox, count: int, xid: int) -> None:
    copy = "copy automation.outbox (xid, topic, partition_key, value) from stdin"
    async with outbox.conn.cursor() as cursor, cursor.copy(copy) as rows:
        for _ in range(count):
            await rows.write_row((str(xid), outbox.topic, "k", b"some bytes of an event"))


async def buffers(stage: Stage, cursor: Cursor, horizon: int) -> dict[str, int]:
    """Pages that the relay's own statement touches, and rows that it finds."""
    asked = {"xid": cursor.xid, "id": cursor.id, "horizon": horizon, "shard": 0, "limit": BATCH}
    async with open_relay_store(stage.dsn) as store:
        conn = await store._connection()
        text = "explain (analyze, buffers, format json) " + statements("relay")["next_rows"]
        for _ in range(2):  # the second one finds hint bits set and pages cached
            row = await (await conn.execute(text, asked)).fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    top = plan[0]["Plan"]
    return {"pages": top["Shared Hit Blocks"] + top["Shared Read Blocks"], "rows": top["Actual Rows"]}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_e05_a_look_touches_no_more_pages_behind_many_sent_rows_than_on_an_empty_table(
    stage: Stage, analyzed: bool
) -> None:
    async with stage.writer() as outbox, open_relay_store(stage.dsn) as store:
        hold = await store.take("one")
        assert hold is not None
        await fill(outbox, WAITING, 200)
        alone = await buffers(stage, Cursor(100, 0), 300)
        nothing_alone = await buffers(stage, Cursor(200, 10**9), 300)
        await fill(outbox, SENT, 50)
        if analyzed:
            await outbox.conn.execute("analyze automation.outbox")
        assert await store.advance(hold.epoch, Progress(Cursor(100, 0), {}))
        behind = await buffers(stage, Cursor(100, 0), 300)
        nothing_behind = await buffers(stage, Cursor(200, 10**9), 300)
    assert alone["rows"] == behind["rows"] == BATCH
    assert nothing_alone["rows"] == nothing_behind["rows"] == 0
    deeper = 4  # a level or two more of one day's index
    assert behind["pages"] <= alone["pages"] + deeper
    assert nothing_behind["pages"] <= nothing_alone["pages"] + deeper
