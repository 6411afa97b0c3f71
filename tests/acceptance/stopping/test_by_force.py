"""A role that does not end, and blocks the loop besides, keeps neither the limit nor a second signal from ending it."""

import asyncio
import os
import signal
import sys

import pytest

from ops.composition.process import FORCED_EXIT, SECOND_SIGNAL_EXIT

STUBBORN = """
import asyncio, sys, time
from ops.composition import process
from processors.ports.measures import Measures

async def stubborn(settings, stop, on_ready, measures):
    on_ready("gateway", {})
    await stop.wait()
    print("stopping", flush=True)
    while True:
        time.sleep(1)

def ready(role, details):
    print("ready", flush=True)

process.LONGEST_STOP_SECONDS = float(sys.argv[1])
asyncio.run(process._run(None, {"gateway": stubborn}, ready, Measures()))
"""


async def heard(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while word not in await process.stdout.readline():
            continue


@pytest.mark.parametrize(("limit", "signals", "code"), [(1, 1, FORCED_EXIT), (3600, 2, SECOND_SIGNAL_EXIT)])
async def test_a_role_that_will_not_end_is_ended(limit: int, signals: int, code: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STUBBORN, str(limit)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    await heard(process, b"ready")
    process.send_signal(signal.SIGTERM)
    if signals > 1:
        await heard(process, b"stopping\n")
        process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == code
    assert (b"stopped_by_force" in said) == (code == FORCED_EXIT)
