"""Measures how fast events on Kafka become runs: made in their lanes, granted or pending, with no executor there.

    python benchmarks/measure_ingest.py --events 60000

The last line is one JSON object with every figure. Figures of one machine and one minute compare only with
others of the same minute: run it before and after a change, in turn.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figures import Figures, Scale, tell
from benchmarks.kafka_load import produce
from benchmarks.measure_w3 import BY_PARTITION, parts, publish, without_executor
from benchmarks.processor_time import Meter
from ops.local import LocalOptions, LocalStack
from processors.adapters.postgres.scripts import query

ROLES = ("gateway", "relay", "ingest", "scheduler")
WARM_UP = 2_000
READ = (Path(__file__).parent / "events_read.sql").read_text("utf-8")
MADE = (Path(__file__).parent / "runs_made.sql").read_text("utf-8")


async def taken(stack: LocalStack, events: int, name: str) -> float:
    """Seconds from the first record to the last run."""
    goal = (await query(stack.log_dsn, READ))[0][0] + events
    begun = time.perf_counter()
    producing = asyncio.create_task(asyncio.to_thread(produce, stack.kafka_bootstrap, BY_PARTITION, events, name))
    while (await query(stack.log_dsn, READ))[0][0] < goal:  # noqa: ASYNC110  another process reads them
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - begun
    await producing
    return seconds


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    await without_executor(stack)
    await _nothing_is_left(stack)
    return await ingested(stack, scale.of(60_000, 15_000))


async def _nothing_is_left(stack: LocalStack) -> None:
    """What came before by other doors is read."""
    read, before = (await query(stack.log_dsn, READ))[0][0], -1
    while read != before:
        await asyncio.sleep(1.0)
        before, read = read, (await query(stack.log_dsn, READ))[0][0]


async def ingested(stack: LocalStack, events: int) -> Figures:
    await taken(stack, WARM_UP, "ingest-warm-up")
    meter = Meter(parts(stack))
    seconds = await taken(stack, events, "ingest-events")
    by_part = meter.per_1000(events)
    made = (await query(stack.log_dsn, MADE))[0][0]
    if made != WARM_UP + events:
        raise AssertionError(f"{made} runs were made of {WARM_UP + events} events")
    return {"ingested_per_s": events / seconds, "ingest_cpu_s_per_1000": by_part}


async def main(events: int) -> None:
    async with LocalStack(LocalOptions(roles=ROLES)) as stack:
        await publish(stack)
        figures = await ingested(stack, events)
    tell(figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=60_000)
    asyncio.run(main(parser.parse_args().events))
