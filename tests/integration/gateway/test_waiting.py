"""Runs by hand with `wait=`: the answer is the run once it has ended, or the plain one when the time is over."""

import asyncio

import pytest

from tests.integration.gateway.conftest import Gateway
from tests.integration.gateway.histories import end_run, record, record_late
from tests.support.waiting import until


@pytest.fixture(autouse=True)
async def _published(secret: str) -> None:
    """Every test here has the workflow."""


async def test_waiting_answers_with_the_ended_run(gateway: Gateway) -> None:
    waiting = asyncio.create_task(gateway.run("k1", query="?wait=30", input={"a": 1}))
    started = await _until_made(gateway)
    await end_run(gateway.dsn, started, state="succeeded", result='{"total": 1.0}')
    answer = await waiting
    assert answer.status == 200
    assert (answer.body["run_id"], answer.body["state"], answer.body["result"]) == (
        started,
        "succeeded",
        {"total": 1.0},
    )
    attached = await gateway.run("k1", query="?wait=30", input={"a": 1})
    assert (attached.status, attached.body["state"]) == (200, "succeeded")


async def test_many_who_wait_are_answered_with_what_a_question_for_their_run_tells(gateway: Gateway) -> None:
    made = [(await gateway.run(f"k{number}", input={"n": number})).body["run_id"] for number in range(5)]
    waiting = [asyncio.create_task(gateway.run(f"k{n}", query="?wait=30", input={"n": n})) for n in range(5)]
    for run in made:
        await record(gateway.dsn, run, ("create", "failed"), ("create", "succeeded"), ("mail", "succeeded"))
        await record_late(gateway.dsn, run, "mail", '{"id": 7}')
        await end_run(gateway.dsn, run, state="succeeded", result='{"total": 1.0}')
    for run, answer in zip(made, await asyncio.gather(*waiting), strict=True):
        shown = await gateway.call("GET", f"/v1/automation/runs/{run}")
        assert [one["seq"] for one in answer.body["attempts"]] == [1, 2, 3]
        assert len(answer.body["late_attempts"]) == 1
        assert {**answer.body, "where": ""} == {**shown.body, "where": ""}


async def test_waiting_ends_after_its_time_with_the_plain_answer(gateway: Gateway) -> None:
    answer = await gateway.run("k1", query="?wait=0.1", input={})
    assert (answer.status, answer.body["status"]) == (202, "created")
    refused = await gateway.run("k1", query="?wait=soon", input={})
    assert (refused.status, refused.code) == (400, "E_INVALID_PARAMETER")
    assert refused.body["detail"] == "wait=soon is not a number of seconds, such as wait=30; 60 at most are waited"


async def _until_made(gateway: Gateway) -> str:
    """The id of the only run, as soon as it is there."""
    made: list[str] = []

    async def is_made() -> bool:
        made.extend(row["run_id"] for row in await gateway.rows("select run_id from automation.live_runs"))
        return bool(made)

    await until(is_made, "the run is made")
    return made[0]
