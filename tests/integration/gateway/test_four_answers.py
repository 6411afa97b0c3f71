"""Every door gives the same four answers by one path, and each is counted."""

import json
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.gateway.conftest import WORKFLOW, Answer, Gateway

Door = Callable[[Gateway, str, str, int], Awaitable[Answer]]
FILTERED = """
- id: trg_large
  type: webhook
  workflow: wf_invoice_settle
  filter: "data.amount > 1000"
"""


async def by_webhook(gateway: Gateway, secret: str, key: str, amount: int) -> Answer:
    return await gateway.hook(secret, json.dumps({"amount": amount}).encode(), key=key)


async def by_event(gateway: Gateway, secret: str, key: str, amount: int) -> Answer:
    body = {"type": "billing.invoice.finalized", "data": {"amount": amount}, "idempotency_key": key}
    return await gateway.call("POST", "/v1/automation/events", json=body)


async def by_batch(gateway: Gateway, secret: str, key: str, amount: int) -> Answer:
    """The answer for the one event of a batch, as if it had come alone."""
    body = {"type": "billing.invoice.finalized", "data": {"amount": amount}, "idempotency_key": key}
    answer = await gateway.call("POST", "/v1/automation/events", json=[body])
    (result,) = answer.body["results"]
    told = result.get("error", result)
    return Answer(told.get("status") if "error" in result else _status(result), answer.headers, told)


async def by_cloudevent(gateway: Gateway, secret: str, key: str, amount: int) -> Answer:
    attributes = {"ce-specversion": "1.0", "ce-type": "billing.invoice.finalized", "ce-source": "/x", "ce-id": key}
    return await gateway.call("POST", "/v1/automation/events", json={"amount": amount}, headers=attributes)


async def by_hand(gateway: Gateway, secret: str, key: str, amount: int) -> Answer:
    return await gateway.run(key, input={"amount": amount})


def _status(result: dict[str, str]) -> int:
    return 202 if result["status"] == "created" else 200


DOORS = [by_webhook, by_event, by_batch, by_cloudevent, by_hand]


@pytest.mark.parametrize("door", DOORS)
async def test_a_key_is_created_then_deduplicated_and_a_conflict_for_another_body(
    gateway: Gateway, secret: str, door: Door
) -> None:
    first = await door(gateway, secret, "k1", 1)
    again = await door(gateway, secret, "k1", 1)
    other = await door(gateway, secret, "k1", 2)
    assert [answer.status for answer in (first, again, other)] == [202, 200, 422]
    assert [answer.body["status"] for answer in (first, again)] == ["created", "deduplicated"]
    name = "run_id" if "run_id" in first.body else "event_id"
    assert again.body[name] == first.body[name]
    assert 0 <= again.body["key_age_seconds"] < 60
    assert ("state" in again.body) == (name == "run_id")
    assert other.code == "E_IDEMPOTENCY_CONFLICT"
    assert first.body[name] not in json.dumps(other.body)
    counted = {outcome: gateway.measures.value("door_answers_total", outcome) for outcome in OUTCOMES}
    assert counted == {"created": 1, "deduplicated": 1, "conflict": 1, "filtered": 0}


async def test_what_a_filter_does_not_want_is_filtered_each_time_and_leaves_no_row(
    gateway: Gateway, secret: str
) -> None:
    published = await gateway.publish({"settle.yaml": WORKFLOW, "triggers.yaml": FILTERED})
    (large,) = [hook["secret"] for hook in published.body["webhooks"] if hook["trigger_id"] == "trg_large"]
    for _ in range(2):
        answer = await gateway.hook(large, b'{"amount": 5}', trigger="trg_large", key="k1")
        assert (answer.status, answer.body) == (202, {"status": "filtered"})
    assert gateway.measures.value("door_answers_total", "filtered") == 2
    for table in ("idempotency_keys", "outbox", "inbox", "live_runs"):
        assert await gateway.rows(f"select from automation.{table}") == []


OUTCOMES = ("created", "deduplicated", "conflict", "filtered")
