"""Two writes that nothing ties lose the second; the record and its event in one commit do not.

That the door's outbox is published though the door died stands among the crashes; here is what it is there for.
"""

import asyncio
import os
import sys
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.durable_pipelines.relayops import RelayOps, values_of
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[3]


async def naive_dual_write(relayops: RelayOps, document: str, point: str = "") -> int:
    """In a process of its own; its exit status."""
    environment = {
        **os.environ,
        "DATABASE": relayops.stack.project_dsn,
        "KAFKA": relayops.stack.kafka_bootstrap,
        "A44_CRASH_POINT": point,
        "PYTHONPATH": str(ROOT),
    }
    script = Path(__file__).with_name("naive_dual_write.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), document, env=environment, cwd=ROOT)
    return await process.wait()


async def test_the_naive_dual_write_forgets_to_tell_the_broker(relayops: RelayOps) -> None:
    async with await psycopg.AsyncConnection.connect(relayops.stack.project_dsn, autocommit=True) as database:
        await database.execute("create table naive_results (document text)")
        assert await naive_dual_write(relayops, "invoice-1") == 0
        assert await naive_dual_write(relayops, "invoice-2", "after_db_write_before_publish") == -9
        rows = await (await database.execute("select document from naive_results order by 1")).fetchall()
    assert rows == [("invoice-1",), ("invoice-2",)]  # both results are there

    def is_told() -> bool:
        return bool(values_of(relayops.stack.kafka_bootstrap, "relayops.naive"))

    await until(is_told, "the first one is told", 60)
    assert values_of(relayops.stack.kafka_bootstrap, "relayops.naive") == [b"invoice-1"]  # nobody will hear of one
