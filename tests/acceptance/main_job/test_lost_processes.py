"""Roles are killed at bad moments: what was accepted becomes exactly its runs, and committed steps stay done."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ops.client import Client
from ops.local import LocalStack
from processors.adapters.postgres.scripts import query
from tests.support.waiting import until
from topology.publication import collect

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]

SLOW = """
import pathlib
import time

from anthares44.automation import step, workflow

LEDGER = pathlib.Path({ledger!r})


def note(word):
    with LEDGER.open("a") as file:
        file.write(word + "\\n")


def wait_for_release(key):
    note("slow")
    deadline = time.monotonic() + 30
    while not LEDGER.with_suffix(".go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("never released")
        time.sleep(0.01)
    return key


@workflow("slow", version=1)
async def slow(ctx, input):
    await step.run("first", timeout="5s", fn=lambda: note("first"))
    key = await step.run("second", timeout="60s", fn=lambda: wait_for_release(ctx.idempotency_key))
    await step.run("third", timeout="5s", fn=lambda: note("third"))
    return key
"""
QUICK = """
name: {name}
version: 1
trigger: {{ {trigger} }}
concurrency: {{ max: 20, partitionKey: "{{{{ input.order }}}}" }}
steps:
  - id: pause
    uses: sleep
    duration: {pause}
"""

# Runs of a lane that overlap, or whose numbers are not dense. A lane that was empty for a while begins with 1 again.
DISORDER = """
select count(*)
  from (select started_at, lag(ended_at) over lane as ended_before, lane_seq, lag(lane_seq) over lane as seq_before
          from automation.runs_ended
         where workflow_id = 'wf_quick'
        window lane as (partition by lane order by started_at)) r
 where ended_before > started_at or lane_seq not in (1, seq_before + 1)
"""


async def document(client: Client, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await asyncio.to_thread(client.show, run_id)).document
    return found


async def test_a_killed_executor_loses_the_attempt_in_flight_and_nothing_else(
    stack: LocalStack, client: Client, flows: Path, passable: Path
) -> None:
    ledger = passable / "ledger.txt"
    ledger.touch(mode=0o666)
    (flows / "slow.py").write_text(SLOW.format(ledger=str(ledger)))
    await asyncio.to_thread(client.publish, collect([flows]))
    run_id = (await asyncio.to_thread(client.run, "wf_slow", "{}", "slow")).document["run_id"]

    async def started() -> bool:
        return ledger.read_text().count("slow") == 1

    await until(started, "the second step runs", 40)
    executor = stack.processes["executor"]
    await executor.kill()
    ledger.with_suffix(".go").touch()
    await executor.start()

    async def ended() -> bool:
        return (await document(client, run_id))["state"] == "succeeded"

    await until(ended, "the run ends", 40)
    attempts = (await document(client, run_id))["attempts"]
    told = [(row["step_id"], row["attempt"], row["status"]) for row in attempts if row["kind"] == "step"]
    assert told == [
        ("first", 1, "succeeded"),
        ("second", 1, "lost"),
        ("second", 2, "succeeded"),
        ("third", 1, "succeeded"),
    ]
    assert ledger.read_text().split() == ["first", "slow", "slow", "third"]


async def test_every_event_is_exactly_one_run_though_each_role_is_killed_once(
    stack: LocalStack, client: Client, flows: Path
) -> None:
    (flows / "quick.yaml").write_text(QUICK.format(name="quick", trigger="event: orders.paid", pause="50ms"))
    await asyncio.to_thread(client.publish, collect([flows]))
    producer = Producer({"bootstrap.servers": stack.kafka_bootstrap, "enable.idempotence": True})
    total, lanes = 300, 15
    for number in range(total):
        envelope = {
            "id": f"evt_{number}",
            "type": "orders.paid",
            "idempotency_key": f"order:{number}",
            "partition_key": f"p{number % lanes}",
            "occurred_at": "2026-11-29T00:00:00Z",
            "attempt": 1,
            "project_id": "dev",
            "data": {"order": f"o{number % lanes}", "number": number},
        }
        producer.produce("a44.events.v1", key=envelope["partition_key"], value=json.dumps(envelope))
    for role in ("ingest", "scheduler", "executor", "relay"):
        await stack.processes[role].kill()
        await stack.processes[role].start()
    assert producer.flush(20) == 0

    async def all_ended() -> bool:
        rows = await query(stack.log_dsn, "select count(*) from automation.runs_ended where workflow_id = 'wf_quick'")
        return int(rows[0][0]) == total

    await until(all_ended, "all runs end", 100)
    rows = await query(
        stack.log_dsn,
        "select count(*), count(distinct event_id), count(*) filter (where state = 'succeeded')"
        "  from automation.runs where workflow_id = 'wf_quick'",
    )
    assert tuple(rows[0]) == (total, total, total)
    disorder = await query(stack.log_dsn, DISORDER)
    assert disorder[0][0] == 0
    order = await query(
        stack.log_dsn,
        "select lane, input from automation.runs_ended where workflow_id = 'wf_quick' order by lane, started_at",
    )
    for lane in {lane for lane, _ in order}:
        numbers = [json.loads(text)["number"] for one, text in order if one == lane]
        assert numbers == sorted(numbers)


async def test_webhooks_are_accepted_while_the_relay_is_away_and_run_when_it_is_back(
    stack: LocalStack, client: Client, flows: Path
) -> None:
    (flows / "quick.yaml").write_text(QUICK.format(name="hooked", trigger="webhook: true", pause="50ms"))
    await asyncio.to_thread(client.publish, collect([flows]))
    await stack.processes["relay"].kill()
    body = b'{"order":"o1"}'
    signed = await asyncio.to_thread(client.sign, "trg_hooked_webhook", body, key="hooked")
    answer = await asyncio.to_thread(client.deliver, signed, body)
    assert answer.status == 202
    run_id = answer.document["run_id"]
    assert (await document(client, run_id))["state"] == "accepted"
    await stack.processes["relay"].start()

    async def ended() -> bool:
        return (await document(client, run_id))["state"] == "succeeded"

    await until(ended, "the run ends", 40)


async def test_a_stop_in_good_order_gives_runs_back_without_losing_an_attempt(
    stack: LocalStack, client: Client, flows: Path
) -> None:
    (flows / "quick.yaml").write_text(QUICK.format(name="paced", trigger="event: orders.paced", pause="1s"))
    await asyncio.to_thread(client.publish, collect([flows]))
    told = [
        await asyncio.to_thread(client.run, "wf_paced", json.dumps({"order": f"o{n}"}), f"paced-{n}") for n in range(10)
    ]
    answers = [one.document["run_id"] for one in told]
    await stack.processes["executor"].stop()
    await stack.processes["executor"].start()

    async def all_ended() -> bool:
        states = [(await document(client, run_id))["state"] for run_id in answers]
        return all(state == "succeeded" for state in states)

    await until(all_ended, "all runs end", 40)
    lost = await query(
        stack.log_dsn,
        "select count(*) from automation.step_attempts join automation.runs using (run_id)"
        " where status = 'lost' and workflow_id = 'wf_paced'",
    )
    assert lost[0][0] == 0
