"""The workflows of these tests, and what a process does when it is told to stop."""

import asyncio
import os
import signal
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ops.client import Client
from ops.local.role_process import RoleProcess
from tests.support.waiting import until
from topology.publication import collect

LIMIT_SECONDS = 10.0

CODE = """
import asyncio
import pathlib
import time

from anthares44.automation import step, workflow

FOLDER = pathlib.Path({folder!r})


def note(file, word):
    with (FOLDER / file).open("a") as ledger:
        ledger.write(word + "\\n")


def hold(run):
    note("held", run)
    deadline = time.monotonic() + 120
    while not (FOLDER / "release").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("never released")
        time.sleep(0.01)


async def hold_async(run):
    note("held", run)
    while not (FOLDER / "release").exists():
        await asyncio.sleep(0.01)


@workflow(
    "short",
    version=1,
    trigger={{"event": "orders.paid"}},
    concurrency={{"max": 8, "partition_key": "{{{{ input.lane }}}}"}},
)
async def short(ctx, input):
    await step.run("work", timeout="20s", fn=lambda: time.sleep(0.05))
    await step.run("tell", timeout="20s", fn=lambda: note("done", str(input["number"])))


@workflow("long-sync", version=1)
async def long_sync(ctx, input):
    await step.run("hold", timeout="120s", fn=lambda: hold(ctx.run_id))


@workflow("long-async", version=1)
async def long_async(ctx, input):
    await step.run("hold", timeout="120s", fn=lambda: hold_async(ctx.run_id))
"""
SLEEPING = """
name: sleeping
version: 1
steps:
  - id: pause
    uses: sleep
    duration: 1h
"""
HOOKED = """
name: hooked
version: 1
trigger: { webhook: true }
concurrency: { max: 8, partitionKey: "{{ input.lane }}" }
steps:
  - id: pause
    uses: sleep
    duration: 50ms
"""


async def publish_flows(client: Client, folder: Path) -> None:
    flows = folder / "flows"
    flows.mkdir()
    (flows / "code.py").write_text(CODE.format(folder=str(folder)))
    (flows / "hooked.yaml").write_text(HOOKED)
    (flows / "sleeping.yaml").write_text(SLEEPING)
    await asyncio.to_thread(client.publish, collect([flows]))


@dataclass(frozen=True)
class Stopped:
    """`seconds` is what the process took for its good order, by its own log; None where it did not come to that."""

    code: int
    seconds: float | None


async def stopped(process: RoleProcess, *, twice: bool = False) -> Stopped:
    """How the process ended after SIGTERM; the second follows when the first was heard."""
    running, begun_at = process._running(), process.log.stat().st_size
    os.kill(process.pid, signal.SIGTERM)
    if twice:
        await until(lambda: "stopping" in times(process, begun_at), "it heard of it", 60)
        os.kill(process.pid, signal.SIGTERM)
    async with asyncio.timeout(90):
        code = await running.wait()
    told = times(process, begun_at)
    return Stopped(code, told["stopped"] - told["stopping"] if "stopped" in told else None)


def times(process: RoleProcess, begun_at: int) -> dict[str, float]:
    """When a process said what, in seconds."""
    return {line["event"]: datetime.fromisoformat(line["timestamp"]).timestamp() for line in process.lines(begun_at)}


def in_good_order(*ended: Stopped) -> bool:
    return all(one.code == 0 and one.seconds is not None and one.seconds < LIMIT_SECONDS for one in ended)
