"""No false alarm: load, Postgres stopped and started, pauses under a second, and every processor busy.

No process is killed here, so no session may be closed because its process seemed gone.
"""

import asyncio
import os
import random
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ops.local.role_process import RoleProcess
from tests.chaos.alarms import closings
from tests.chaos.display import Display
from tests.chaos.session import Scene, Wish, opened

REST_SECONDS = (3.0, 9.0)
PAUSE_SECONDS = (0.3, 0.9)
POSTGRES_EVERY = 5
BUSY = "while True: pass"
RATE = 20.0
ALARMS = "session_false_alarms_total"


async def soak(wish: Wish, seconds: float, display: Display) -> dict[str, Any]:
    """The report as one object; `violations` counts the false alarms."""
    async with opened(wish, display) as scene, _busy_processors():
        scene.load.rate = RATE
        sending = asyncio.create_task(scene.load.run())
        try:
            restarts, pauses = await _disturb(scene, seconds)
        finally:
            sending.cancel()
        processes = list(scene.stack.processes.values())
        alarms = len(closings(processes, "probe"))
        executors = [one for one in processes if one.role == "executor"]
        measured = sum(await asyncio.gather(*(asyncio.to_thread(_measured_alarms, one) for one in executors)))
        lost = await scene.looker.one("select count(*) from automation.step_attempts where status = 'lost'")
        return {
            "seed": wish.seed,
            "kafka": wish.kafka,
            "lease_seconds": wish.lease,
            "soak_seconds": round(seconds),
            "runs_ended": scene.load.ended,
            "postgres_restarts": restarts,
            "pauses": pauses,
            "attempts_lost": lost,
            "sessions_closed": {"probe": alarms, "lease": len(closings(processes, "lease"))},
            "sessions_given_up": sum(line.get("event") == "session_lost" for one in executors for line in one.lines()),
            "false_alarms": alarms,
            "false_alarms_measured": measured,
            "violations": {"no_false_alarms": alarms + measured} if alarms or measured else {},
        }


async def _disturb(scene: Scene, seconds: float) -> tuple[int, int]:
    rng = random.Random(scene.wish.seed)
    begun = time.monotonic()
    restarts = pauses = 0
    while (past := time.monotonic() - begun) < seconds:
        scene.display.tick("seconds of soak", int(past), int(seconds))
        scene.display.tick("orders sent", scene.load.sent, scene.wish.runs)
        await asyncio.sleep(rng.uniform(*REST_SECONDS))
        if rng.randrange(POSTGRES_EVERY) == 0:
            await scene.stack.servers.postgres.stop_immediately()
            await scene.stack.servers.postgres.start()
            restarts += 1
        else:
            process = rng.choice(list(scene.stack.processes.values()))
            process.pause()
            try:
                await asyncio.sleep(rng.uniform(*PAUSE_SECONDS))
            finally:
                process.go_on()
            pauses += 1
    return restarts, pauses


def _measured_alarms(executor: RoleProcess) -> int:
    """What the executor itself says: its session was gone before its lease was over."""
    with urllib.request.urlopen(str(executor.told["metrics"]), timeout=20) as answer:  # noqa: S310  its own address
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith(ALARMS)))


@asynccontextmanager
async def _busy_processors() -> AsyncIterator[None]:
    """One process that only counts for each processor."""
    busy = [await asyncio.create_subprocess_exec(sys.executable, "-c", BUSY) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            await one.wait()
