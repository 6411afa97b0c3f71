"""A deadline is a dead end of its own: the run is cancelled wherever it is, and is no dead letter."""

import asyncio
import sys
from typing import Any

import pytest

from ops.cli.app import main
from tests.acceptance.durable_pipelines.relayops import PATIENCE, RelayOps
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
FLOWS = """
import json
import pathlib
import time

from anthares44.automation import RetryableError, step, workflow

LEDGER = pathlib.Path({ledger!r})


def note(what, document):
    with LEDGER.open("a") as file:
        file.write(json.dumps([what, document["document_id"]]) + "\\n")


def works_long(document):
    note("extract", document)
    time.sleep(120)


def fails(document):
    note("extract", document)
    raise RetryableError("not yet", retry_after=0.3)


@workflow("late-running", version=1, deadline="7s")
async def running(ctx, input):
    await step.run("extract", timeout="200s", fn=lambda: works_long(input))


@workflow("late-sleeping", version=1, deadline="7s")
async def sleeping(ctx, input):
    await step.sleep("cooldown", "2h")


@workflow("late-retrying", version=1, deadline="7s")
async def retrying(ctx, input):
    await step.run("extract", timeout="5s", retry={{"max": 1000, "base": "1s"}}, fn=lambda: fails(input))


@workflow("late-backing-off", version=1, deadline="7s")
async def backing_off(ctx, input):
    def fails_for_long():
        note("extract", input)
        raise RetryableError("not today", retry_after=250)

    await step.run("extract", timeout="5s", retry={{"max": 3, "cap": "300s"}}, fn=fails_for_long)


@workflow("late-blocked", version=1, deadline="7s")
async def blocked(ctx, input):
    import asyncio

    await asyncio.Event().wait()


@workflow("in-time", version=1, deadline="30m")
async def in_time(ctx, input):
    await step.run("extract", timeout="5s", fn=lambda: note("extract", input))


@workflow("late-pending", version=1, deadline="4s", queue="q_narrow")
async def pending(ctx, input):
    await step.run("extract", timeout="5s", fn=lambda: note("extract", input))


@workflow("occupant", version=1, queue="q_narrow")
async def occupant(ctx, input):
    await step.run("extract", timeout="300s", fn=lambda: works_long(input))
"""
YAML = """
name: late-yaml
version: 1
deadline: 7s
steps:
  - { id: cooldown, uses: sleep, duration: 2h }
"""
QUEUES = "queues: [{ id: q_narrow, maxConcurrency: 1 }]\n"


@pytest.fixture(autouse=True)
async def flows(relayops: RelayOps) -> None:
    files = {"late.py": FLOWS.format(ledger=str(relayops.ledger)), "late.yaml": YAML, "queues.yaml": QUEUES}
    await asyncio.to_thread(relayops.tenant.client.publish, files)


async def stands(relayops: RelayOps, run_id: str, *states: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def does() -> bool:
        found.update(await relayops.tenant.show(run_id))
        return found["state"] in states

    await until(does, f"the run is {' or '.join(states)}", PATIENCE)
    return found


async def assert_dead_end(relayops: RelayOps, run_id: str, *before: str) -> dict[str, Any]:
    """`before` are the states that were told of the run until then."""
    run = await stands(relayops, run_id, "cancelled", "failed", "succeeded")
    assert (run["state"], run["error_code"]) == ("cancelled", "E_DEADLINE")
    assert run["ended_at"] > run["deadline_at"] > run["accepted_at"]
    assert await relayops.rows("select from automation.dead_letters where run_id = %s", run_id) == []
    events = await relayops.run_events(run_id, len(before) + 1)
    assert [event.state for event in events] == [*before, "cancelled"]
    assert events[-1].error_code == "E_DEADLINE"
    return run


@pytest.mark.parametrize(
    ("workflow", "on_the_way"),
    [
        ("late-running", "running"),
        ("late-sleeping", "sleeping"),
        ("late-backing-off", "retrying"),
        ("late-blocked", "blocked"),
        ("late-yaml", "sleeping"),
    ],
)
async def test_a_run_is_cancelled_at_its_deadline_wherever_it_is(
    relayops: RelayOps, workflow: str, on_the_way: str
) -> None:
    run_id = await relayops.tenant.run(f"doc-{workflow}", f"wf_{workflow.replace('-', '_')}")
    await stands(relayops, run_id, on_the_way)
    await assert_dead_end(relayops, run_id, *(["blocked"] if on_the_way == "blocked" else []))


async def test_tries_that_are_left_do_not_outlive_the_deadline(relayops: RelayOps) -> None:
    """And the other way round: three tries end a run long before its deadline, among the dead letters."""
    document = "doc-late-retrying"
    run_id = await relayops.tenant.run(document, "wf_late_retrying")
    await assert_dead_end(relayops, run_id)
    assert 2 <= relayops.extractions(document) < 1000


async def test_a_run_behind_a_full_queue_is_never_started_and_does_not_wait_to_end(relayops: RelayOps) -> None:
    occupant = await relayops.tenant.run("doc-occupant", "wf_occupant")
    await stands(relayops, occupant, "running")
    run_id = await relayops.tenant.run("doc-late-pending", "wf_late_pending")
    waiting = await stands(relayops, run_id, "pending")
    assert "Its deadline is " in waiting["where"]
    run = await assert_dead_end(relayops, run_id)
    assert (await relayops.tenant.show(occupant))["state"] == "running"  # its slot was never free
    assert [row["kind"] for row in run["attempts"] if row["kind"] != "run"] == []
    assert relayops.extractions("doc-late-pending") == 0
    await asyncio.to_thread(relayops.tenant.client.cancel, occupant)
    await stands(relayops, occupant, "cancelled")


async def test_an_executor_that_was_away_at_the_deadline_begins_nothing(relayops: RelayOps) -> None:
    executor = relayops.stack.processes["executor"]
    await executor.stop()
    run_id = await relayops.tenant.run("doc-late-granted", "wf_late_pending")

    async def has_passed() -> bool:
        over = "select from automation.live_runs where run_id = %s and deadline_at < clock_timestamp()"
        return bool(await relayops.rows(over, run_id))

    await until(has_passed, "the deadline passes", PATIENCE)
    await executor.start()
    await assert_dead_end(relayops, run_id)
    assert relayops.extractions("doc-late-granted") == 0


async def test_nothing_brings_a_cancelled_run_back(relayops: RelayOps) -> None:
    document = "doc-late-again"
    run_id = await relayops.tenant.run(document, "wf_late_sleeping")
    await assert_dead_end(relayops, run_id)
    assert await relayops.tenant.run(document, "wf_late_sleeping") == run_id  # the same key: the same dead end
    assert (await relayops.tenant.show(run_id))["state"] == "cancelled"


async def test_a_run_that_ends_in_time_is_left_alone_and_shows_its_deadline(
    relayops: RelayOps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = await relayops.tenant.run("doc-in-time", "wf_in_time")
    run = await stands(relayops, run_id, "succeeded", "cancelled", "failed")
    assert (run["state"], run["error"]) == ("succeeded", None)
    monkeypatch.setenv("A44_URL", relayops.stack.url)
    monkeypatch.setenv("A44_TOKEN", relayops.tenant.client._token)
    monkeypatch.setattr(sys, "argv", ["a44", "automation", "show", run_id])
    with pytest.raises(SystemExit):
        main()
    assert f"deadline  {run['deadline_at']}" in capsys.readouterr().out
