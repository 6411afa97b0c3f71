"""Triggers tried on an event through the API: what would happen is told, and nothing happens."""

from tests.integration.gateway.conftest import Gateway

FLOW = "name: refund\nversion: 1\nsteps: [{id: nap, uses: sleep, duration: 1s}]\n"
TRIGGERS = """
- {id: trg_large, type: event, event: refund, workflow: wf_refund, filter: data.amount > 5, deliver: {maxAge: 1h}}
- {id: trg_lane, type: event, event: refund, workflow: wf_refund, partitionKey: "{{ data.shop }}"}
- {id: trg_hook, type: webhook, workflow: wf_refund}
"""


async def test_each_trigger_says_whether_it_would_fire_and_why_not(gateway: Gateway) -> None:
    await gateway.publish({"flow.yaml": FLOW, "triggers.yaml": TRIGGERS})
    event = {"type": "refund", "occurred_at": "2026-07-19T14:00:00Z", "data": {"amount": 7, "shop": "s1"}}
    answer = await gateway.call("POST", "/v1/automation/triggers/test", json=event)
    assert (answer.status, answer.body["event_type"]) == (200, "refund")
    told = {one["trigger_id"]: one for one in answer.body["triggers"]}
    assert {name: one["fires"] for name, one in told.items()} == {
        "trg_hook": False,
        "trg_lane": True,
        "trg_large": False,
    }
    assert (told["trg_lane"]["lane"], told["trg_lane"]["version"]) == ("s1", "1")
    assert told["trg_large"]["code"] == "E_EVENT_TOO_OLD"
    assert "webhook.hook" in told["trg_hook"]["why"]
    hook = await gateway.call("POST", "/v1/automation/triggers/test", json={"type": "webhook.hook", "data": {}})
    assert [one["trigger_id"] for one in hook.body["triggers"] if one["fires"]] == ["trg_hook"]
    assert await gateway.rows("select run_id from automation.runs") == []
    assert await gateway.rows("select key_hash from automation.idempotency_keys") == []


async def test_an_event_that_no_door_would_take_is_refused(gateway: Gateway) -> None:
    for event, code in (
        ({"type": "refund"}, "E_INVALID_PARAMETER"),
        ({"type": "refund", "data": {}, "partition_ky": "x"}, "E_INVALID_PARAMETER"),
        ({"type": "refund", "data": {}, "occurred_at": "soon"}, "E_ENVELOPE_INVALID"),
        ({"type": "refund", "data": {}, "project_id": "pj_other"}, "E_INVALID_PARAMETER"),
    ):
        answer = await gateway.call("POST", "/v1/automation/triggers/test", json=event)
        assert answer.code == code, event
        assert answer.status < 500


async def test_a_webhook_that_its_filter_lets_pass_by_is_kept_where_its_trigger_asks(gateway: Gateway) -> None:
    trigger = (
        "- {id: trg_watched, type: webhook, workflow: wf_refund, filter: data.amount > 5, "
        "deliver: {dropOnFilterMiss: false}}"
    )
    published = await gateway.publish({"flow.yaml": FLOW, "triggers.yaml": trigger})
    secret = published.body["webhooks"][0]["secret"]
    answer = await gateway.hook(secret, b'{"amount": 1}', key="k1", trigger="trg_watched")
    assert (answer.status, answer.body["status"]) == (202, "filtered")
    [miss] = (await gateway.call("GET", "/v1/automation/triggers/trg_watched/misses")).body
    assert (miss["event_type"], miss["idempotency_key"]) == ("webhook.watched", "k1")
    assert "amount" not in str(miss)
    gone = await gateway.call("GET", "/v1/automation/triggers/trg_other/misses")
    assert (gone.status, gone.code) == (404, "E_TRIGGER_NOT_FOUND")
