"""A client that keeps a number of runs in flight, each from its start to its result. Standard library only.

It runs in the peers' own venv. What it saw is printed as one JSON object: one run at a time first, then saturated,
with CPU seconds of all processes of the peer.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from benchmarks.processor_time import Meter

WARM_UP_RUNS, WARM_UP_IN_FLIGHT = 100, 20
Call = Callable[[str], Awaitable[object]]


def order() -> dict[str, Any]:
    """What the benchmark asks of this process: addresses, process ids, how long and how many."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


async def drive(call: Call, given: dict[str, Any], alone: Call | None = None) -> None:
    """`call` starts the run of a new id and returns with its result; `alone` is another way for one at a time."""
    await _runs(call, WARM_UP_IN_FLIGHT, range(WARM_UP_RUNS))
    single, _ = await _runs(alone or call, 1, range(given["alone"]))
    meter = Meter(given["pids"])
    many, seconds = await _runs(call, given["in_flight"], _for_seconds(given["seconds"]))
    by_part = meter.per_1000(len(many))
    figures = {
        "per_s": len(many) / seconds,
        "p50_ms": _percentile(many, 0.5),
        "p99_ms": _percentile(many, 0.99),
        "alone_p50_ms": _percentile(single, 0.5),
        "alone_p99_ms": _percentile(single, 0.99),
        "cpu_s_per_1000": sum(by_part.values()),
        "cpu_s_per_1000_by_part": by_part,
    }
    print(json.dumps(figures))


async def _runs(call: Call, in_flight: int, turns: Iterable[int]) -> tuple[list[float], float]:
    """Seconds of each run, and of all together until the last result."""
    took: list[float] = []
    remaining, begun = iter(turns), time.perf_counter()

    async def lane() -> None:
        for _ in remaining:
            at = time.perf_counter()
            await call(f"run-{uuid.uuid4().hex}")
            took.append(time.perf_counter() - at)

    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return took, time.perf_counter() - begun


def _for_seconds(seconds: float) -> Iterable[int]:
    until, number = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        yield number
        number += 1


def _percentile(took: list[float], share: float) -> float:
    return 1e3 * sorted(took)[min(len(took) - 1, int(len(took) * share))]
