"""A step that blocks the event loop of its host past its timeout is a step that failed, not a run that kills hosts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ops.client import Client
from ops.local import LocalStack
from tests.support.waiting import until
from topology.publication import collect

FLOW = """
import time

from anthares44.automation import StepTimeout, step, workflow


async def blocks():
    time.sleep(60)


@workflow("blocker", version=1)
async def blocker(ctx, input):
    await step.run("first", timeout="5s", fn=lambda: 1)
    try:
        await step.run("blocks", timeout="500ms", retry={"max": 2, "base": "10ms"}, fn=blocks)
    except StepTimeout:
        await step.run("instead", timeout="5s", fn=lambda: 2)
        return "caught"
"""


pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]


async def test_the_body_catches_the_timeout_of_a_step_that_blocks(
    stack: LocalStack, client: Client, flows: Path
) -> None:
    (flows / "blocker.py").write_text(FLOW)
    await asyncio.to_thread(client.publish, collect([flows]))
    run_id = (await asyncio.to_thread(client.run, "wf_blocker", "{}", "blocker")).document["run_id"]
    found: dict[str, Any] = {}

    async def ended() -> bool:
        found.update((await asyncio.to_thread(client.show, run_id)).document)
        return found["ended_at"] is not None

    await until(ended, "the run ends", 100)
    assert (found["state"], found["result"]) == ("succeeded", "caught"), found["attempts"]
    failures = [row for row in found["attempts"] if row["step_id"] == "blocks" and row["status"] == "failed"]
    assert [row["error_code"] for row in failures] == ["E_STEP_TIMEOUT"] * 2
