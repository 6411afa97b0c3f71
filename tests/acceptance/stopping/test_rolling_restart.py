"""Every role is restarted once under load at every door: no request fails, no lease is lost, every run ends once."""

import asyncio
import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from ops.client import Client
from ops.local import LocalStack
from ops.settings import ROLES
from processors.adapters.postgres.scripts import query
from tests.acceptance.stopping.flows import in_good_order, stopped
from tests.acceptance.stopping.load import Load
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

WARM_UP = 20


async def test_a_rolling_restart_under_load_shows_no_failed_request_and_no_lost_lease(
    stack: LocalStack, client: Client, passable: Path
) -> None:
    watched = await waiting_run(client)
    load = await Load.prepared(stack, client)
    sending = asyncio.create_task(load.run(watched))
    await until(partial(has_sent, load, WARM_UP), "the load is under way", 90)
    ended = []
    for role in (*ROLES, "gateway"):
        ended.append(await stopped(stack.processes[role]))
        await stack.processes[role].start()
        await until(partial(has_sent, load, load.sent.total() + WARM_UP), "the load goes on", 90)
    load.stop.set()
    await sending
    await until(lambda: all_ended(stack, load), f"all runs end: {load.sent}", 180)

    assert load.failures == []
    assert in_good_order(*ended), ended
    assert all("E_SHUTTING_DOWN" in told for told in load.ends_of_streams)
    assert load.ends_of_streams
    await every_run_ended_once(stack, load, passable)
    await nobody_lost_a_lease(stack)


def has_sent(load: Load, number: int) -> bool:
    return load.sent.total() > number


async def waiting_run(client: Client) -> str:
    """A run that sleeps for as long as the test takes."""
    made = await asyncio.to_thread(client.run, "wf_sleeping", "{}", "watched")
    return str(made.document["run_id"])


async def all_ended(stack: LocalStack, load: Load) -> bool:
    rows = await query(stack.log_dsn, "select count(*) from automation.runs_ended where workflow_id <> 'wf_sleeping'")
    return int(rows[0][0]) >= load.sent.total()


async def every_run_ended_once(stack: LocalStack, load: Load, folder: Path) -> None:
    rows = await query(
        stack.log_dsn,
        "select workflow_id, trigger_id is null, state, count(*), count(distinct event_id) from automation.runs"
        " where workflow_id <> 'wf_sleeping' group by 1, 2, 3",
    )
    assert {(row[0], row[2]) for row in rows} == {("wf_short", "succeeded"), ("wf_hooked", "succeeded")}
    assert sum(row[3] for row in rows) == sum(row[4] for row in rows) == load.sent.total()
    steps = Counter((folder / "done").read_text().split())
    assert set(steps.values()) == {1}
    assert len(steps) == load.sent["manual"] + load.sent["event"]
    outcomes = await query(
        stack.log_dsn, "select kind, status, count(*) from automation.step_attempts where kind = 'step' group by 1, 2"
    )
    assert {(row[0], row[1]) for row in outcomes} == {("step", "succeeded")}, json.dumps(outcomes)


async def nobody_lost_a_lease(stack: LocalStack) -> None:
    lost = {"session_lost", "session_closed", "lease_not_renewed", "not_given_back", "stopped_by_force"}
    told = [line for process in stack.processes.values() for line in process.lines() if line["event"] in lost]
    assert told == []
    crashes = await query(stack.log_dsn, "select coalesce(sum(crashes), 0) from automation.live_runs")
    assert crashes == [(0,)]
