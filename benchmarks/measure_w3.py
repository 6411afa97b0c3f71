"""Measures W3 through Kafka, saturated: at 2,000 runs at once, at the default limit of 100, and by partition.

    python benchmarks/measure_w3.py --runs 12000

Alone it also shows W3 through REST, one at a time, with the plain client. The last line is one JSON object.
Figures of one machine and one minute compare only with others of the same minute: run it before and after a
change, in turn.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figures import Figures, Scale, tell
from benchmarks.kafka_load import Ends, check_all_succeeded, produce
from benchmarks.processor_time import Meter
from ops.client import Client
from ops.local import LocalOptions, LocalStack
from topology.publication import collect

ALONE, WARM_UP = 200, 500
FULL = {"A44_EXECUTOR_SLOTS": "2000"}
FLOWS = Path(__file__).parent / "w3"
W3, AT_100, BY_PARTITION = "bench.w3", "bench.w3-at-100", "bench.w3-by-partition"


async def alone(client: Client) -> list[float]:
    """Seconds from the call to the result, one run at a time, sorted."""
    took = []
    for number in range(ALONE):
        begun = time.perf_counter()
        await asyncio.to_thread(client.run, "wf_w3", "{}", f"alone-{number}", wait=30)
        took.append(time.perf_counter() - begun)
    return sorted(took)


async def saturated(stack: LocalStack, runs: int, event_type: str = W3) -> float:
    """Seconds from the first record to the last end."""
    ends = await asyncio.to_thread(Ends, stack.kafka_bootstrap)
    begun = time.perf_counter()
    await asyncio.to_thread(produce, stack.kafka_bootstrap, event_type, runs, f"b{time.time_ns()}")
    ended = await asyncio.to_thread(ends.wait_for, runs)
    seconds = time.perf_counter() - begun
    ends.close()
    check_all_succeeded(ended)
    return seconds


def parts(stack: LocalStack) -> dict[str, int]:
    """Process ids by part."""
    servers = {"postgres": stack.servers.postgres.pid, "broker": stack.servers.broker.pid}
    return {**servers, **{role: process.pid for role, process in stack.processes.items() if process.is_running}}


async def publish(stack: LocalStack, flows: Path = FLOWS) -> None:
    client = Client(stack.url, stack.token)
    await asyncio.to_thread(client.publish, collect([flows]))
    client.close()


async def without_executor(stack: LocalStack) -> None:
    """Killed, since one that holds runs for minutes would stop slowly."""
    if stack.processes["executor"].is_running:
        await stack.processes["executor"].kill()


class Saturated(NamedTuple):
    per_s: float
    by_part: dict[str, float]  # CPU seconds per 1,000
    cores: dict[str, float]


async def one_kind(stack: LocalStack, event_type: str, runs: int) -> Saturated:
    """Behind a warm-up."""
    await saturated(stack, WARM_UP, event_type)
    meter = Meter(parts(stack))
    seconds = await saturated(stack, runs, event_type)
    return Saturated(runs / seconds, meter.per_1000(runs), meter.cores())


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    runs = scale.of(12_000, 4_000)
    full = await one_kind(stack, W3, runs)
    at_100 = await one_kind(stack, AT_100, runs // 2)
    by_partition = await one_kind(stack, BY_PARTITION, runs // 2)
    return {
        "w3_kafka_per_s": full.per_s,
        "w3_kafka_per_s_at_100": at_100.per_s,
        "w3_kafka_per_s_by_partition": by_partition.per_s,
        "share_at_100": at_100.per_s / full.per_s,
        "cpu_s_per_1000": sum(full.by_part.values()),
        "cpu_s_per_1000_at_100": sum(at_100.by_part.values()),
        "cpu_s_per_1000_by_partition": sum(by_partition.by_part.values()),
        "cpu_s_per_1000_by_part": full.by_part,
        "w3_cores": full.cores,
    }


async def main(runs: int) -> None:
    async with LocalStack(LocalOptions(environment=FULL)) as stack:
        await publish(stack)
        client = Client(stack.url, stack.token)
        took = await alone(client)
        client.close()
        full = await one_kind(stack, W3, runs)
    tell(
        {
            "w3_kafka_per_s": full.per_s,
            "w3_alone_p50_ms": 1e3 * took[len(took) // 2],
            "w3_alone_p99_ms": 1e3 * took[int(len(took) * 0.99)],
            "cpu_s_per_1000": sum(full.by_part.values()),
            "cpu_s_per_1000_by_part": full.by_part,
            "w3_cores": full.cores,
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12_000)
    asyncio.run(main(parser.parse_args().runs))
