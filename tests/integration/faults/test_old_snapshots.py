"""Somebody keeps one transaction open for long (case E07): dead rows stay, and what runs all the time stays quick."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from processors.ports.journal import Batch
from tests.integration.faults.arrivals import webhook
from tests.integration.faults.others import transaction
from tests.integration.log.lab import PROJECT, QUEUE, Lab, end_of, entry_of, manual_acceptance

ENDED = 2000
HUNDRED = 100
READER = ("set transaction isolation level repeatable read", "select count(*) from automation.live_runs")
CURSOR = "select cursor_xid::text::bigint as xid, cursor_id as id from automation.relay_shards"
ONE = {"projects": [PROJECT], "queues": [QUEUE]}


class Looks:
    """Claims, grants and the relay's look, with the plans that a process makes early and keeps."""

    def __init__(self, lab: Lab, conn: psycopg.AsyncConnection[Any]) -> None:
        self._lab = lab
        self._conn = conn
        self._kept: set[str] = set()

    async def pages(self) -> dict[str, int]:
        """8 kB pages that each touches when there is one thing to do."""
        (cursor,) = await self._lab.rows(CURSOR)
        session = await self._lab.value("select max(session_id) from automation.sessions")
        return {
            "claim_any": await self._of("executor", "claim_any", {"room": HUNDRED, "session": session}),
            "grant_ready": await self._of("grants", "grant_ready", {**ONE, "most": HUNDRED}),
            "next_rows": await self._of("relay", "next_rows", {"shard": 0, **cursor, "horizon": 2**40, "limit": 1000}),
            "hungry_queues": await self._of("scheduler", "hungry_queues", {}),
        }

    async def _of(self, topic: str, name: str, params: dict[str, Any]) -> int:
        """Of one statement, whose effect does not stay."""
        text, names = statements(topic)[name], sorted(params)
        if name not in self._kept:
            self._kept.add(name)
            for place, one in enumerate(names, 1):
                text = text.replace(f"%({one})s", f"${place}")
            await self._conn.execute(f"prepare {name} as {text}".encode())
        values = sql.SQL(", ").join(sql.Literal(params[one]) for one in names)
        call = sql.SQL("({})").format(values) if names else sql.SQL("")
        explain = sql.SQL("explain (analyze, buffers, format json) execute {}{}").format(sql.Identifier(name), call)
        async with self._conn.transaction(force_rollback=True):
            row = await (await self._conn.execute(explain, prepare=False)).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


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
    cursor passes over nothing.
    """
    await lab.queue(limit=1000)
    conn = await connect(lab.dsn, "plans")
    async with conn:
        looks = Looks(lab, conn)
        await soak(lab, HUNDRED)
        fresh = await looks.pages()
        async with transaction(lab, *READER):
            await soak(lab, ENDED)
            old = await looks.pages()
        await lab.rows("vacuum automation.live_runs")
        after = await looks.pages()
    assert old["next_rows"] <= fresh["next_rows"] + 10
    for name in ("claim_any", "grant_ready", "hungry_queues"):
        assert old[name] <= fresh[name] + ENDED // 8, (fresh, old)
    assert all(after[name] <= fresh[name] + 10 for name in fresh), (fresh, after)
