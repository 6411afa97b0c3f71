"""A type's schema at every door: what does not fit is refused with its place, before a key is taken."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from processors.ports.tokens import READ
from tests.integration.gateway.conftest import Answer, Gateway

FLOW = """
name: invoice-settle
version: 1
trigger:
  event: order.paid
  webhook: {id: trg_settle}
steps:
  - {id: pause, uses: sleep, duration: 1s}
"""
TYPES = ("order.paid", "webhook.settle", "manual.invoice_settle")
SCHEMA = "{type: object, required: [amount], properties: {amount: {type: integer, minimum: 1}}}"
EVENTS = "events:\n" + "".join(f"  - type: {name}\n    schema: {SCHEMA}\n" for name in TYPES)
FILES = {"flow.yaml": FLOW, "events.yaml": EVENTS}
PATH = "/v1/automation/events"
Door = Callable[[Gateway, str, Any], Awaitable[Answer]]


async def by_event(gateway: Gateway, secret: str, data: Any) -> Answer:
    return await gateway.call("POST", PATH, json={"type": "order.paid", "data": data, "idempotency_key": "k"})


async def by_batch(gateway: Gateway, secret: str, data: Any) -> Answer:
    """The answer for the one event of a batch, as if it had come alone."""
    answer = await gateway.call("POST", PATH, json=[{"type": "order.paid", "data": data, "idempotency_key": "k"}])
    (result,) = answer.body["results"]
    told = result.get("error", result)
    return Answer(told.get("status") if "error" in result else 202, answer.headers, told)


async def by_lines(gateway: Gateway, secret: str, data: Any) -> Answer:
    line = json.dumps({"type": "order.paid", "data": data, "idempotency_key": "k"})
    answer = await gateway.call("POST", PATH, data=line, headers={"Content-Type": "application/x-ndjson"})
    (result,) = answer.body["results"]
    told = result.get("error", result)
    return Answer(told.get("status") if "error" in result else 202, answer.headers, told)


async def by_binary_cloudevent(gateway: Gateway, secret: str, data: Any) -> Answer:
    attributes = {"ce-specversion": "1.0", "ce-type": "order.paid", "ce-source": "/x", "ce-id": "k"}
    return await gateway.call("POST", PATH, json=data, headers=attributes)


async def by_structured_cloudevent(gateway: Gateway, secret: str, data: Any) -> Answer:
    event = {"specversion": "1.0", "type": "order.paid", "source": "/x", "id": "k", "data": data}
    headers = {"Content-Type": "application/cloudevents+json"}
    return await gateway.call("POST", PATH, data=json.dumps(event), headers=headers)


async def by_webhook(gateway: Gateway, secret: str, data: Any) -> Answer:
    return await gateway.hook(secret, json.dumps(data).encode(), key="k")


async def by_hand(gateway: Gateway, secret: str, data: Any) -> Answer:
    return await gateway.run("k", input=data)


DOORS = (by_event, by_batch, by_lines, by_binary_cloudevent, by_structured_cloudevent, by_webhook, by_hand)


async def published(gateway: Gateway) -> str:
    answer = await gateway.publish(FILES)
    assert answer.status == 200, answer.body
    told = [(one["kind"], one["id"], one["version"]) for one in answer.body["published"] if one["kind"] == "event"]
    assert told == [("event", name, "1") for name in TYPES]
    return str(answer.body["webhooks"][0]["secret"])


@pytest.mark.parametrize("door", DOORS)
async def test_what_does_not_fit_is_refused_and_its_key_stays_free(gateway: Gateway, door: Door) -> None:
    secret = await published(gateway)
    refused = await door(gateway, secret, {"amount": 0})
    assert (refused.status, refused.code) == (422, "E_EVENT_SCHEMA")
    told = {name: refused.body[name] for name in ("path", "seen", "expected", "schema_version")}
    assert told == {"path": "/amount", "seen": "a whole number", "expected": "minimum 1", "schema_version": 1}
    assert await gateway.rows("select key_hash from automation.idempotency_keys") == []
    assert await gateway.rows("select id from automation.outbox") == []
    assert (await door(gateway, secret, {"amount": 1})).status == 202


async def test_a_type_without_a_schema_takes_what_it_did(gateway: Gateway) -> None:
    await published(gateway)
    answer = await gateway.call("POST", PATH, json={"type": "order.other", "data": [None]})
    assert answer.status == 202


async def test_a_schema_is_in_force_for_the_event_that_comes_after_it(gateway: Gateway) -> None:
    """Although this gateway had a catalog at hand that knew of none."""
    await gateway.publish({"flow.yaml": FLOW})
    assert (await by_event(gateway, "", {"amount": "1"})).status == 202
    await gateway.publish(FILES)
    for _ in range(3):
        answer = await gateway.call("POST", PATH, json={"type": "order.paid", "data": {"amount": "1"}})
        assert (answer.status, answer.code) == (422, "E_EVENT_SCHEMA")


async def test_nothing_of_a_schema_is_told_to_whoever_did_not_sign(gateway: Gateway) -> None:
    secret = await published(gateway)
    forged = await gateway.hook(secret, b'{"amount":0}', signature="0" * 64)
    assert (forged.status, forged.code) == (401, "E_SIGNATURE")
    assert "amount" not in str(forged.body)
    refused = await gateway.hook(secret, b'{"amount":0}')
    assert refused.code == "E_EVENT_SCHEMA"
    assert gateway.measures.value("webhook_rejected_total", "E_EVENT_SCHEMA") == 1


async def test_a_batch_refuses_only_the_events_that_do_not_fit(gateway: Gateway) -> None:
    await published(gateway)
    events = [
        {"type": "order.paid", "data": {"amount": number}, "idempotency_key": f"k{number}"} for number in (1, 0, 2)
    ]
    answer = await gateway.call("POST", PATH, json=events)
    assert (answer.status, answer.body["created"], answer.body["refused"]) == (207, 2, 1)
    assert answer.body["results"][1]["error"]["path"] == "/amount"


async def test_what_is_declared_otherwise_is_the_next_version(gateway: Gateway) -> None:
    await published(gateway)
    again = await gateway.publish(FILES)
    assert {one["change"] for one in again.body["published"]} == {"unchanged"}
    wider = {"events.yaml": EVENTS.replace("minimum: 1", "minimum: 0")}
    answer = await gateway.publish(wider)
    assert {(one["version"], one["change"]) for one in answer.body["published"]} == {("2", "updated")}
    assert (await by_event(gateway, "", {"amount": 0})).status == 202
    refused = await gateway.call("POST", PATH, json={"type": "order.paid", "data": {}})
    assert refused.body["schema_version"] == 2


async def test_a_schema_that_is_wrong_is_refused_at_its_place_and_nothing_is_published(gateway: Gateway) -> None:
    answer = await gateway.publish({**FILES, "events.yaml": EVENTS.replace("type: integer", "type: whole", 1)})
    assert (answer.status, answer.code) == (422, "E_SPEC_INVALID")
    assert (answer.body["place"]["file"], answer.body["place"]["line"]) == ("events.yaml", 3)
    assert await gateway.rows("select workflow_id from automation.workflows") == []


async def test_an_event_is_tried_on_the_schema_of_its_type(gateway: Gateway) -> None:
    await published(gateway)
    path = "/v1/automation/triggers/test"
    unfit = (await gateway.call("POST", path, json={"type": "order.paid", "data": {"amount": None}})).body
    assert (unfit["schema"]["version"], unfit["schema"]["fits"], unfit["schema"]["path"]) == (1, False, "/amount")
    (asked,) = [one for one in unfit["triggers"] if one["trigger_id"] == "trg_invoice_settle_event"]
    assert (asked["fires"], asked["code"]) == (False, "E_EVENT_SCHEMA")
    fit = (await gateway.call("POST", path, json={"type": "order.paid", "data": {"amount": 1}})).body
    assert fit["schema"] == {"version": 1, "fits": True}
    assert (await gateway.call("POST", path, json={"type": "order.other", "data": 1})).body["schema"] is None


async def test_event_types_are_listed_and_shown_as_they_were_declared(gateway: Gateway) -> None:
    await gateway.publish(FILES)
    avro = "{type: record, name: Order, fields: [{name: n, type: long}]}"
    await gateway.publish({"more.yaml": f"events:\n  - {{type: avro, avro: {avro}, compatibility: none}}\n"})
    listed = await gateway.call("GET", "/v1/automation/event-types")
    assert [one["event_type"] for one in listed.body] == sorted(["avro", *TYPES])
    assert listed.body[0] == {"event_type": "avro", "version": 1, "words": "avro", "compatibility": "none"}
    shown = await gateway.call("GET", "/v1/automation/event-types/order.paid")
    assert (shown.body["words"], shown.body["schema"]["required"]) == ("json-schema", ["amount"])
    assert (await gateway.call("GET", "/v1/automation/event-types/avro")).body["schema"]["name"] == "Order"
    gone = await gateway.call("GET", "/v1/automation/event-types/order.payed")
    assert (gone.status, gone.code, "order.paid" in gone.body["detail"]) == (404, "E_NOT_FOUND", True)
    other = await gateway.call(
        "GET", "/v1/automation/event-types", token=await gateway.tokens.create_token("pj_other", "t", [READ])
    )
    assert other.body == []
