"""A key is asked for before anything that steers the flow: queues, lanes, limits and revisions make no second run."""

import pytest

from tests.integration.gateway.conftest import WORKFLOW, Gateway

ORDERED = WORKFLOW + 'concurrency: {max: 1, partitionKey: "{{ input.lane }}"}\n'


@pytest.mark.parametrize("dev", [False, True], ids=["published", "while-developing"])
async def test_b07_three_sends_with_one_key_make_one_run_whatever_steers_its_queue(gateway: Gateway, dev: bool) -> None:
    await gateway.publish({"settle.yaml": ORDERED}, dev=dev)
    await gateway.rows("update automation.queues set max_concurrency = 1")
    first = await gateway.run("before", input={"lane": "a"})  # it has the only slot
    sent = [await gateway.run("k1", input={"lane": "a"}) for _ in range(3)]
    assert [answer.status for answer in (first, *sent)] == [202, 202, 200, 200]
    assert len({answer.body["run_id"] for answer in sent}) == 1
    if dev:  # a save in between makes a revision, and no second run
        await gateway.publish({"settle.yaml": ORDERED.replace("id: pause", "id: rest")}, dev=True)
        assert (await gateway.run("k1", input={"lane": "a"})).body["status"] == "deduplicated"
    rows = await gateway.rows("select idempotency_key, lane_seq, state from automation.live_runs order by lane_seq")
    assert [(row["idempotency_key"], row["lane_seq"]) for row in rows] == [("before", 1), ("k1", 2)]
    assert [lane["tail_seq"] for lane in await gateway.rows("select tail_seq from automation.lanes")] == [2]


async def test_b07_an_ended_or_cancelled_run_keeps_its_key(gateway: Gateway) -> None:
    await gateway.publish({"settle.yaml": WORKFLOW})
    run = (await gateway.run("k1", input={})).body["run_id"]
    assert (await gateway.call("POST", f"/v1/automation/runs/{run}/cancel", json={})).status == 202
    again = await gateway.run("k1", input={})
    assert (again.status, again.body["run_id"]) == (200, run)
    assert len(await gateway.rows("select from automation.runs")) == 1
