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

from benchmarks.figures import Figures, Scale, tell
from benchmarks.http_load import Load, Told, drive
from benchmarks.measure_w3 import FULL, parts, publish, without_executor
from benchmarks.processor_time import Meter
from ops.client import Client
from ops.local import LocalOptions, LocalStack
from topology.publication import collect

HERE = Path(__file__).parent
ALONE, CLIENTS, SENDERS = 300, 512, 256
CALM_SECONDS = 4
WEBHOOK_BODY_BYTES = 1000
SHARE = 0.7  # of what the door took when it was full


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


def by_part(meter: Meter, told: Told, count: int) -> dict[str, float]:
    """CPU seconds per 1,000; the client is what made the load."""
    return meter.per_1000(count) | {"client": 1e3 * told.cpu_seconds / count}


def _check_all_answered(status: int, *all_told: Told) -> None:
    """A fast refusal is no figure."""
    for told in all_told:
        if set(told.statuses) != {status}:
            raise AssertionError(f"answers of the benchmark were {dict(told.statuses)}")


async def measure_rest(stack: LocalStack, scale: Scale) -> Figures:
    return await rest(stack, scale.of(6_000, 2_000), scale.of(ALONE, 60))


async def measure_webhooks(stack: LocalStack, scale: Scale) -> Figures:
    await without_executor(stack)
    return await webhooks(stack, await publish_doors(stack), scale.of(15_000, 5_000), scale.of(CALM_SECONDS, 2))


async def publish_doors(stack: LocalStack) -> str:
    """The secret of the webhooks."""
    client = Client(stack.url, stack.token)
    told = await asyncio.to_thread(partial(client.publish, collect([HERE / "doors"])))
    client.close()
    return str(next(hook["secret"] for hook in told["webhooks"]))


async def rest(stack: LocalStack, runs: int, singles: int = ALONE) -> Figures:
    await load(stack, rest_requests(stack, "warm", 60), 1)
    alone = await load(stack, rest_requests(stack, "alone", singles), 1)
    await load(stack, rest_requests(stack, "full-warm", CLIENTS), CLIENTS)
    meter = Meter(parts(stack))
    full = await load(stack, rest_requests(stack, "full", runs), CLIENTS)
    used, cores = by_part(meter, full, runs), meter.cores()
    _check_all_answered(200, full, alone)
    return {
        "w3_alone_p50_ms": alone.percentile_ms(0.5),
        "w3_alone_p99_ms": alone.percentile_ms(0.99),
        "w3_rest_per_s": full.per_second,
        "w3_rest_p99_ms": full.percentile_ms(0.99),
        "rest_statuses": dict(full.statuses + alone.statuses),
        "rest_cpu_s_per_1000": sum(used.values()),
        "rest_cpu_s_per_1000_by_part": used,
        "rest_cores": cores,
    }


async def webhooks(stack: LocalStack, secret: str, count: int, calm_seconds: int = CALM_SECONDS) -> Figures:
    await load(stack, signed_requests(stack, secret, "hook-warm", 500), SENDERS)
    meter = Meter(parts(stack))
    full = await load(stack, signed_requests(stack, secret, "hook-full", count), SENDERS)
    used = by_part(meter, full, count)
    rate = SHARE * full.per_second
    calm = await load(stack, signed_requests(stack, secret, "hook-calm", int(calm_seconds * rate)), SENDERS, rate)
    _check_all_answered(202, full, calm)
    return {
        "accepted_per_s": full.per_second,
        "accepted_p99_ms": full.percentile_ms(0.99),
        "accepted_p99_ms_at_70": calm.percentile_ms(0.99),
        "accepted_statuses": dict(full.statuses + calm.statuses),
        "accepted_cpu_s_per_1000_by_part": used,
    }


async def main(runs: int, hooks: int) -> None:
    figures: Figures = {}
    async with LocalStack(LocalOptions(environment=FULL)) as stack:
        await publish(stack)
        secret = await publish_doors(stack)
        if runs:
            figures |= await rest(stack, runs)
        if hooks:
            await without_executor(stack)
            figures |= await webhooks(stack, secret, hooks)
    tell(figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6_000, help="through REST, saturated")
    parser.add_argument("--webhooks", type=int, default=15_000, help="signed, saturated")
    given = parser.parse_args()
    asyncio.run(main(given.runs, given.webhooks))
