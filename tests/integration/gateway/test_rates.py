"""A project with a limit is told to come again, at every door; others are not."""

from processors.gateway.app import RATES
from tests.integration.gateway.conftest import PROJECT, Gateway

EVENTS = "/v1/automation/events"


async def limited(gateway: Gateway, rate: float) -> None:
    await gateway.rows("delete from automation.projects")
    await gateway.rows("insert into automation.projects (project_id, events_per_second) values (%s, %s)", PROJECT, rate)
    await gateway.app[RATES].refresh()


async def test_past_its_limit_a_project_is_told_at_every_door_when_to_come_again(gateway: Gateway, secret: str) -> None:
    other = await gateway.tokens.create_token("pj_other", "tests", ["automation:write"])
    await limited(gateway, 0.01)
    assert (await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1})).status == 202
    refused = [
        await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 2}),
        await gateway.run("k1", input={}),
        await gateway.hook(secret, b"{}", key="k2"),
    ]
    assert {(one.status, one.code) for one in refused} == {(429, "E_RATE_LIMITED")}
    assert all(1 <= int(one.headers["Retry-After"]) <= 100 for one in refused)
    assert (await gateway.hook(secret, b"{}", signature="0" * 64)).status == 401  # a stranger learns nothing
    assert (await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1}, token=other)).status == 202
    assert (await gateway.call("GET", "/v1/automation/runs")).status == 200
    assert len(await gateway.rows("select id from automation.outbox")) == 2


async def test_a_batch_counts_as_its_events(gateway: Gateway) -> None:
    await limited(gateway, 10)
    events = [{"type": "a.b", "data": number} for number in range(500)]
    taken = await gateway.call("POST", EVENTS, json=events)
    assert (taken.status, taken.body["created"]) == (207, 500)
    later = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": -1})
    assert (later.status, later.code) == (429, "E_RATE_LIMITED")
    assert 30 <= int(later.headers["Retry-After"]) <= 50
    await gateway.rows("update automation.projects set events_per_second = null")
    await gateway.app[RATES].refresh()
    assert (await gateway.call("POST", EVENTS, json={"type": "a.b", "data": -1})).status == 202
