"""Somebody keeps one transaction open for long (case E07): dead rows stay, and what runs all the time stays quick."""

from typing import Any

import psycopg
import pytest

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from processors.ports.journal import Batch
from tests.integration.faults.arrivals import webhook
from tests.integration.faults.others import transaction
from tests.integration.log.lab import PROJECT, QUEUE, Lab, end_of, entry_of, manual_acceptance

ENDED = 2000
HUNDRED = 100
READER = ("set transaction isolation level repeatable read", "select count(*) from automation.live_runs")
ONE = {"projects": [PROJECT], "queues": [QUEUE]}


async def pages(lab: Lab, topic: str, name: str, params: dict[str, Any]) -> int:
    """8 kB pages that a statement of the service touches; nothing of it stays."""
    conn = await connect(lab.dsn, "plans")
    async with conn:
        cursor = psycopg.AsyncClientCursor(conn)
        text = cursor.mogrify(statements(topic)[name], params)
        async with conn.transaction(force_rollback=True):
            found = await conn.execute(f"explain (analyze, buffers, format json) {text}".encode(), prepare=False)
            row = await found.fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def looks(lab: Lab) -> dict[str, int]:
    """What claims, grants and the relay touch when there is one thing to do."""
    (cursor,) = await lab.rows("select cursor_xid::text::bigint as xid, cursor_id as id from automation.relay_shards")
    behind = {"shard": 0, **cursor, "horizon": 2**40, "limit": 1000}
    session = await lab.value("select max(session_id) from automation.sessions")
    return {
        "claim_any": await pages(lab, "executor", "claim_any", {"room": HUNDRED, "session": session}),
        "grant_ready": await pages(lab, "grants", "grant_ready", {**ONE, "most": HUNDRED}),
        "next_rows": await pages(lab, "relay", "next_rows", behind),
        "hungry_queues": await pages(lab, "scheduler", "hungry_queues", {}),
    }


async def soak(lab: Lab, many: int) -> None:
    """So many runs are made, claimed, recorded and ended, and as many events are sent."""
    door, journal = await lab.door(), await lab.journal()
    for start in range(0, many, HUNDRED):
        await door.accept(webhook(f"order-{start}-{many}"))
        runs = [lab.run() for _ in range(HUNDRED)]
        await lab.make(runs)
        claims = await lab.claim(journal, HUNDRED)
        await journal.commit(
            Batch(entries=[entry_of(claim, 1) for claim in claims], ends=[end_of(claim) for claim in claims])
        )
    await lab.rows(
        "update automation.relay_shards set (cursor_xid, cursor_id)"
        " = (select xid, id from automation.outbox order by xid desc, id desc limit 1)"
    )
    await door.accept(manual_acceptance(lab.run()))


@pytest.mark.timeout(240)
async def test_e07_under_an_old_snapshot_claims_grants_and_the_relay_stay_on_a_few_pages(lab: Lab) -> None:
    """Dead runs lie side by side: ten to a page, so that what is read over grows by a tenth of what ended. The relay's
    cursor passes over nothing. Nobody analyzes meanwhile: what is compared is one plan of a claim with itself.
    """
    await lab.rows("alter table automation.live_runs set (autovacuum_enabled = off)")
    await lab.queue(limit=1000)
    await soak(lab, HUNDRED)
    fresh = await looks(lab)
    async with transaction(lab, *READER):
        await soak(lab, ENDED)
        old = await looks(lab)
    assert old["next_rows"] <= fresh["next_rows"] + 10
    for name in ("claim_any", "grant_ready", "hungry_queues"):
        assert old[name] <= fresh[name] + ENDED // 8, (fresh, old)
    await lab.rows("vacuum automation.live_runs")
    after = await looks(lab)
    assert all(after[name] <= fresh[name] + 10 for name in fresh), (fresh, after)
