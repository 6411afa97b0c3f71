"""Measures where the time of one run goes: through the events door and Kafka, and through REST with `wait=`.

One run at a time; the median of each stretch in milliseconds. Moments are those on record, those that the topics'
records carry (whole milliseconds), and those at which this process saw something; all on one machine's clock.
"""

import asyncio
import http.client
import json
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.figures import Figures, Scale
from benchmarks.kafka_load import EVENTS, Ends, Seen
from benchmarks.measure_w3 import W3
from ops.client import Client
from ops.local import LocalStack
from processors.adapters.postgres.scripts import query

THROUGH_KAFKA = ("door", "relay", "kafka", "ingest", "claim", "start", "steps", "end", "told")
THROUGH_REST = ("door", "claim", "start", "steps", "end", "answer")
MOMENTS = (Path(__file__).parent / "moments_of_runs.sql").read_text("utf-8")
OK = 300


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    runs, name = scale.of(60, 30), f"budget-{time.time_ns()}"
    rest = await asyncio.to_thread(_through_rest, stack, runs, f"{name}-r")
    sent, published, ended = await _through_kafka(stack, runs, f"{name}-k")
    known = {row[0]: row[1:] for row in await query(stack.log_dsn, MOMENTS)}
    by_kafka, by_rest = [], []
    for key, (at, answered) in sent.items():
        created, *moments = known[key]
        seen = published[key.encode()]
        by_kafka.append([at, answered, seen.record.timestamp()[1] / 1e3, seen.at, created, *moments, ended[key]])
    for key, (at, answered) in rest.items():
        created, *moments = known[key]
        by_rest.append([at, created, *moments, answered])
    return {
        "budget_kafka_ms": _stretches(THROUGH_KAFKA, by_kafka),
        "budget_rest_ms": _stretches(THROUGH_REST, by_rest),
    }


def _stretches(names: Sequence[str], runs: Sequence[Sequence[float]]) -> dict[str, float]:
    lengths = zip(*([after - before for before, after in pairwise(moments)] for moments in runs), strict=True)
    by_name = {name: 1e3 * statistics.median(one) for name, one in zip(names, lengths, strict=True)}
    return by_name | {"whole": 1e3 * statistics.median(moments[-1] - moments[0] for moments in runs)}


def _through_rest(stack: LocalStack, runs: int, name: str) -> dict[str, tuple[float, float]]:
    """When each run was asked for and answered."""
    client, moments = Client(stack.url, stack.token), {}
    for number in range(runs):
        key, sent = f"{name}-{number}", time.time()
        client.run("wf_w3", "{}", key, wait=30)
        moments[key] = sent, time.time()
    client.close()
    return moments


async def _through_kafka(
    stack: LocalStack, runs: int, name: str
) -> tuple[dict[str, tuple[float, float]], dict[bytes, Seen], dict[str, float]]:
    """When each event was sent and answered, its record as another consumer saw it, and when the run's end was seen."""
    records = await asyncio.to_thread(Ends, stack.kafka_bootstrap, EVENTS, soon=True)
    watching = asyncio.create_task(asyncio.to_thread(records.wait_for, runs, 1))
    sent, ended = await asyncio.to_thread(_send_one_by_one, stack, runs, name)
    published = await watching
    records.close()
    return sent, published, ended


def _send_one_by_one(
    stack: LocalStack, runs: int, name: str
) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
    door, ends = http.client.HTTPConnection(urlsplit(stack.url).netloc), Ends(stack.kafka_bootstrap, soon=True)
    sent, ended = {}, {}
    for number in range(runs):
        key = f"{name}-{number}"
        body = json.dumps({"type": W3, "idempotency_key": key, "partition_key": key, "data": {"n": number}})
        at = time.time()
        door.request(
            "POST",
            "/v1/automation/events",
            body,
            {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"},
        )
        answer = door.getresponse()
        if answer.status >= OK:
            raise AssertionError(f"the door answered {answer.status}: {answer.read().decode()}")
        answer.read()
        sent[key] = at, time.time()
        ended[key] = next(iter(ends.wait_for(1).values())).at
    door.close()
    ends.close()
    return sent, ended
