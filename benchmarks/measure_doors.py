"""Measures the doors: W3 through REST with `wait=`, one at a time and saturated, and signed webhooks answered 202.

    python benchmarks/measure_doors.py --runs 6000

The last line is one JSON object with every figure. CPU seconds are those of all processes, the client's among them and
told apart as well. While webhooks are counted no executor runs. Compare figures of one sitting only, in turn.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.http_load import Load, Told, drive
from benchmarks.processor_time import processor_seconds
from ops.client import Client
from ops.local import LocalOptions, LocalStack
from topology.publication import collect

HERE = Path(__file__).parent
ALONE, CLIENTS, SENDERS = 300, 256, 64
WEBHOOK_BODY_BYTES = 1000
SHARE = 0.7  # of what the door took when it was full
FULL = {"A44_EXECUTOR_SLOTS": "2000"}


def rest_requests(stack: LocalStack, name: str, count: int) -> list[bytes]:
    return [
        _request(
            "/v1/automation/workflows/wf_w3/runs?wait=60",
            {"Authorization": f"Bearer {stack.token}", "A44-Idempotency-Key": f"{name}-{number}"},
            b'{"input":{"n":%d}}' % number,
        )
        for number in range(count)
    ]


def signed_requests(stack: LocalStack, secret: str, name: str, count: int) -> list[bytes]:
    stamp, made = str(int(time.time())), []
    for number in range(count):
        body = json.dumps({"order": f"{name}-{number}", "note": ""}).encode()
        body = body[:-2] + b"x" * (WEBHOOK_BODY_BYTES - len(body)) + body[-2:]
        signature = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        headers = {"A44-Timestamp": stamp, "A44-Signature": signature, "A44-Idempotency-Key": f"{name}-{number}"}
        made.append(_request(f"/v1/{stack.options.project}/trg_doors", headers, body))
    return made


def _request(path: str, headers: dict[str, str], body: bytes) -> bytes:
    told = {"Host": "doors", "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def load(stack: LocalStack, requests: Sequence[bytes], connections: int, rate: float | None = None) -> Told:
    address = urlsplit(stack.url)
    return await asyncio.to_thread(
        drive, Load(str(address.hostname), int(address.port or 0), requests, connections, rate)
    )


def used(stack: LocalStack) -> dict[str, float]:
    """CPU seconds by part."""
    servers = {"postgres": stack.servers.postgres.pid, "broker": stack.servers.broker.pid}
    running = {name: process.pid for name, process in stack.processes.items() if process.is_running}
    return {part: processor_seconds(pid) for part, pid in {**servers, **running}.items()}


def since(before: dict[str, float], after: dict[str, float], client: float, count: int) -> dict[str, float]:
    parts = {part: after[part] - before[part] for part in after} | {"client": client}
    return {part: round(1e3 * seconds / count, 3) for part, seconds in parts.items()}


async def rest(stack: LocalStack, runs: int) -> dict[str, object]:
    await load(stack, rest_requests(stack, "warm", 60), 1)
    alone = await load(stack, rest_requests(stack, "alone", ALONE), 1)
    await load(stack, rest_requests(stack, "full-warm", CLIENTS), CLIENTS)
    before = used(stack)
    full = await load(stack, rest_requests(stack, "full", runs), CLIENTS)
    by_part = since(before, used(stack), full.cpu_seconds, runs)
    return {
        "w3_alone_p50_ms": round(alone.percentile_ms(0.5), 1),
        "w3_alone_p99_ms": round(alone.percentile_ms(0.99), 1),
        "w3_rest_per_s": round(full.per_second, 1),
        "w3_rest_p99_ms": round(full.percentile_ms(0.99), 1),
        "rest_statuses": dict(full.statuses + alone.statuses),
        "rest_cpu_s_per_1000": round(sum(by_part.values()), 3),
        "rest_cpu_s_per_1000_by_part": by_part,
    }


async def webhooks(stack: LocalStack, secret: str, count: int) -> dict[str, object]:
    await stack.processes["executor"].stop()
    await load(stack, signed_requests(stack, secret, "hook-warm", 500), SENDERS)
    before = used(stack)
    full = await load(stack, signed_requests(stack, secret, "hook-full", count), SENDERS)
    by_part = since(before, used(stack), full.cpu_seconds, count)
    rate = SHARE * full.per_second
    calm = await load(stack, signed_requests(stack, secret, "hook-calm", int(4 * rate)), SENDERS, rate)
    return {
        "accepted_per_s": round(full.per_second, 1),
        "accepted_p99_ms": round(full.percentile_ms(0.99), 1),
        "accepted_p99_ms_at_70": round(calm.percentile_ms(0.99), 1),
        "accepted_statuses": dict(full.statuses + calm.statuses),
        "accepted_cpu_s_per_1000_by_part": by_part,
    }


async def main(runs: int, hooks: int) -> None:
    figures: dict[str, object] = {}
    async with LocalStack(LocalOptions(environment=FULL)) as stack:
        client = Client(stack.url, stack.token)
        await asyncio.to_thread(client.publish, collect([HERE / "w3"]))
        told = await asyncio.to_thread(partial(client.publish, collect([HERE / "doors"])))
        client.close()
        secret = next(hook["secret"] for hook in told["webhooks"])
        if runs:
            figures |= await rest(stack, runs)
        if hooks:
            figures |= await webhooks(stack, secret, hooks)
    for name, value in figures.items():
        print(f"{name:<32} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6_000, help="through REST, saturated")
    parser.add_argument("--webhooks", type=int, default=15_000, help="signed, saturated")
    given = parser.parse_args()
    asyncio.run(main(given.runs, given.webhooks))
