"""Measures the bare path on the stack's own Postgres and broker, while the service stands by: what bounds W3 here.

Its roles are started for the measurement and end with it; ends are seen on its own run-events topic.
"""

import asyncio
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.bare_path.surroundings import BOOTSTRAP, DSN, EVENTS, RUN_EVENTS, TOPICS, statement
from benchmarks.figures import Figures, Scale
from benchmarks.kafka_load import KEYS, Ends, send_all
from benchmarks.processor_time import Meter
from ops.embedded.process import Kept, Plan
from ops.local import LocalStack

PARTITIONS, WARM_UP = 8, 500
ROLES = ("ingest", "executor")
HERE = Path(__file__).resolve().parent


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    runs, alone = scale.of(20_000, 8_000), scale.of(100, 20)
    async with bare_roles(stack) as pids:
        bootstrap = stack.kafka_bootstrap
        await asyncio.to_thread(_drive, bootstrap, WARM_UP)
        took = await asyncio.to_thread(_one_at_a_time, bootstrap, alone)
        meter = Meter({"postgres": stack.servers.postgres.pid, "broker": stack.servers.broker.pid, **pids})
        seconds = await asyncio.to_thread(_drive, bootstrap, runs)
        by_part, cores = meter.per_1000(runs), meter.cores()
    return {
        "floor_per_s": runs / seconds,
        "floor_cpu_s_per_1000": sum(by_part.values()),
        "floor_cpu_s_per_1000_by_part": by_part,
        "floor_cores": cores,
        "floor_alone_p50_ms": 1e3 * took[len(took) // 2],
    }


@asynccontextmanager
async def bare_roles(stack: LocalStack) -> AsyncIterator[dict[str, int]]:
    """Empty tables, topics, and both roles at work; process ids by role."""
    dsn = await stack.servers.create_database("bare_path", secrets.token_urlsafe(16))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute(statement("schema"))
    await asyncio.to_thread(_make_topics, stack.kafka_bootstrap)
    started = {role: await Kept.start(_plan(stack, role, dsn)) for role in ROLES}
    try:
        yield {role: kept.pid for role, kept in started.items()}
    finally:
        for kept in started.values():
            await kept.stop()


def _plan(stack: LocalStack, role: str, dsn: str) -> Plan:
    return Plan(
        name=f"the bare {role}",
        command=(sys.executable, "-m", f"benchmarks.bare_path.{role}"),
        cwd=HERE.parent,
        log=stack.folder / "logs" / f"bare-{role}.log",
        env={DSN: dsn, BOOTSTRAP: stack.kafka_bootstrap},
    )


def _make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        try:
            made.result(10)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _drive(bootstrap: str, runs: int) -> float:
    """Seconds from the first record to the last end."""
    ends = Ends(bootstrap, RUN_EVENTS)
    begun = time.perf_counter()
    send_all(bootstrap, EVENTS, _records(runs))
    ends.wait_for(runs)
    seconds = time.perf_counter() - begun
    ends.close()
    return seconds


def _one_at_a_time(bootstrap: str, runs: int) -> list[float]:
    """Seconds from each record to its end, sorted."""
    ends, producer, took = (
        Ends(bootstrap, RUN_EVENTS, soon=True),
        Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}),
        [],
    )
    for key, value in _records(runs):
        begun = time.perf_counter()
        producer.produce(EVENTS, key=key, value=value)
        producer.poll(0)
        ends.wait_for(1)
        took.append(time.perf_counter() - begun)
    producer.flush()
    ends.close()
    return sorted(took)


def _records(runs: int) -> Iterator[tuple[str, str]]:
    first = time.time_ns()
    for number in range(runs):
        key = f"p{number % KEYS}"
        event = {
            "id": f"evt_{number}",
            "n": first + number,
            "type": "bench.w3",
            "idempotency_key": f"k{number}",
            "partition_key": key,
            "occurred_at": "2026-11-29T00:00:00Z",
            "attempt": 1,
            "data": {"n": number, "text": "x" * 100},
        }
        yield key, json.dumps(event)
