"""Measures W3 on the local stack: one at a time through REST, and saturated through the events topic.

    python benchmarks/measure_w3.py --runs 12000

The last line is one JSON object with every figure. Figures of one machine and one minute compare only with
others of the same minute: run it before and after a change, in turn.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.processor_time import processor_seconds
from ops.client import Client
from ops.local import LocalOptions, LocalStack
from processors.adapters.postgres.scripts import query
from topology.publication import collect

ALONE, KEYS = 200, 500
ENDED = (Path(__file__).parent / "ended.sql").read_text("utf-8")


async def alone(client: Client) -> list[float]:
    """Seconds from the call to the result, one run at a time, sorted."""
    took = []
    for number in range(ALONE):
        begun = time.perf_counter()
        await asyncio.to_thread(client.run, "wf_w3", "{}", f"alone-{number}", wait=30)
        took.append(time.perf_counter() - begun)
    return sorted(took)


def produce(bootstrap: str, runs: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(runs):
        envelope = {
            "id": f"evt_bench_{number}",
            "type": "bench.w3",
            "idempotency_key": f"bench-{number}",
            "partition_key": f"p{number % KEYS}",
            "occurred_at": "2026-11-29T00:00:00Z",
            "attempt": 1,
            "project_id": "dev",
            "data": {"n": number, "text": "x" * 100},
        }
        while True:
            try:
                producer.produce("a44.events.v1", key=envelope["partition_key"], value=json.dumps(envelope))
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush()


async def saturated(stack: LocalStack, runs: int) -> float:
    """Seconds from the first record to the last end."""
    begun = time.perf_counter()
    await asyncio.to_thread(produce, stack.kafka_bootstrap, runs)
    while (await query(stack.log_dsn, ENDED))[0][0] < runs + ALONE:  # noqa: ASYNC110  another process ends them
        await asyncio.sleep(0.1)
    return time.perf_counter() - begun


def parts(stack: LocalStack) -> dict[str, int]:
    """Process ids by part."""
    servers = {"postgres": stack.servers.postgres.pid, "broker": stack.servers.broker.pid}
    return {**servers, **{role: process.pid for role, process in stack.processes.items()}}


async def main(runs: int) -> None:
    async with LocalStack(LocalOptions(environment={"A44_EXECUTOR_SLOTS": "2000"})) as stack:
        client = Client(stack.url, stack.token)
        await asyncio.to_thread(client.publish, collect([Path(__file__).parent / "w3"]))
        took = await alone(client)
        before = {part: processor_seconds(pid) for part, pid in parts(stack).items()}
        seconds = await saturated(stack, runs)
        used = {part: processor_seconds(pid) - before[part] for part, pid in parts(stack).items()}
        client.close()
    figures = {
        "w3_kafka_per_s": round(runs / seconds, 1),
        "w3_alone_p50_ms": round(1e3 * took[len(took) // 2], 1),
        "w3_alone_p99_ms": round(1e3 * took[int(len(took) * 0.99)], 1),
        "cpu_s_per_1000": round(1e3 * sum(used.values()) / runs, 2),
        "cpu_s_per_1000_by_part": {part: round(1e3 * one / runs, 3) for part, one in used.items()},
    }
    for name, value in figures.items():
        print(f"{name:<24} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12_000)
    asyncio.run(main(parser.parse_args().runs))
