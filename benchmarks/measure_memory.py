"""Measures what an executor holds in memory with 10,000 sleeping and 1,000 running runs, its step hosts told apart.

`executor_memory_mb` is the resident size of the executor's own process; hosts are counted by their proportional size.
The runs stay, so this is the last thing that an executor is asked. Counting ends when all have arrived.
"""

import asyncio
import time
from pathlib import Path

from benchmarks.figures import Figures, Scale
from benchmarks.kafka_load import PATIENCE_SECONDS, produce
from benchmarks.measure_w3 import publish
from ops.local import LocalStack
from processors.adapters.postgres.scripts import query

SLEEPING, RUNNING = 10_000, 1_000
LOOK_SECONDS = 0.2
HERE = Path(__file__).parent
STATES = (HERE / "states_of_held.sql").read_text("utf-8")


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    executor = stack.processes["executor"]
    sleeping, running = scale.of(SLEEPING, SLEEPING), scale.of(RUNNING, RUNNING)
    before = resident_mb(executor.pid)
    await publish(stack, HERE / "held")
    name, begun = f"h{time.time_ns()}", time.perf_counter()
    await asyncio.to_thread(produce, stack.kafka_bootstrap, "bench.sleeper", sleeping, f"{name}s")
    await asyncio.to_thread(produce, stack.kafka_bootstrap, "bench.holder", running, f"{name}r")
    await _all_are_held(stack, sleeping, running)
    return {
        "executor_memory_mb": resident_mb(executor.pid),
        "executor_memory_mb_before": before,
        "hosts_memory_mb": sum(proportional_mb(pid) for pid in executor.children()),
        "held_after_s": time.perf_counter() - begun,
    }


async def _all_are_held(stack: LocalStack, *expected: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while tuple((await query(stack.log_dsn, STATES))[0]) != expected:  # noqa: ASYNC110  other processes
            await asyncio.sleep(LOOK_SECONDS)


def resident_mb(pid: int) -> float:
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS:") / 1024


def proportional_mb(pid: int) -> float:
    """Pages that hosts share with each other count once."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") / 1024


def _kilobytes(file: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(name))
