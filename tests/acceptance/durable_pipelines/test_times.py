"""Three times of one document: how long it waited, how long it was worked on, how long its review took."""

import asyncio
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import LiteralString, cast

import pytest

from tests.acceptance.durable_pipelines.relayops import RelayOps
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
HELD = timedelta(seconds=0.5)
CLOCKS = timedelta(milliseconds=50)  # ours and the database's
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "durable-pipelines.md"
FLOW = """
import pathlib
import time

from anthares44.automation import step, workflow

GO = pathlib.Path({go!r})


def extract():
    GO.with_name("begun").touch()
    deadline = time.monotonic() + 60
    while not GO.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody let it go on")
        time.sleep(0.01)


@workflow("timed", version=1, concurrency={{"max": 1}})
async def timed(ctx, input):
    await step.run("extract", timeout="90s", fn=extract)
    await step.sleep("cooldown", "300ms")
"""


async def test_waiting_working_and_review_are_told_apart(relayops: RelayOps) -> None:
    """Two documents in a queue of one: the second one waits while the first is worked on."""
    go = relayops.ledger.with_name("go")
    await asyncio.to_thread(relayops.tenant.client.publish, {"timed.py": FLOW.format(go=str(go))})
    begun = time.monotonic()
    first = await relayops.tenant.run("invoice-first", "wf_timed")
    second = await relayops.tenant.run("invoice-second", "wf_timed")
    await until(go.with_name("begun").exists, "the first is worked on", 60)
    assert (await relayops.tenant.show(second))["state"] == "pending"
    held_since = time.monotonic()
    await until(lambda: time.monotonic() > held_since + HELD.total_seconds(), "both are held up for a while")
    go.touch()
    await relayops.tenant.ended("invoice-first")
    await relayops.tenant.ended("invoice-second")
    longest = timedelta(seconds=time.monotonic() - begun)
    found = re.search(r"```sql\n(.*?);\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    rows = {row[0]: row[1:] for row in await relayops.rows(cast("LiteralString", found[1]))}
    (_, worked_1, _), (waited_2, _, _) = rows[first], rows[second]
    nap = timedelta(seconds=0.3)
    for waited, worked, alive in (rows[first], rows[second]):
        assert timedelta() < waited + worked + nap <= alive + timedelta(milliseconds=1) <= longest
    assert waited_2 > HELD - CLOCKS
    assert worked_1 > HELD - CLOCKS
    (event,) = await relayops.run_events(second)
    relayops.board.handle(event)
    reviews = relayops.board.opened_at(second)
    assert reviews > event.occurred_at
