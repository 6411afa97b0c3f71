"""CloudEvents whose attributes stand in headers: beside a whole event, where they are copies, and as quoted text."""

import json

from schemas.envelope import Envelope, decode_envelope
from tests.integration.gateway.conftest import Answer, Gateway

CLOUD = {"specversion": "1.0", "type": "shop.order.paid", "source": "/shop/7", "id": "o-1", "subject": "order-1"}


async def post(gateway: Gateway, body: bytes, content_type: str, **headers: str) -> Answer:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.call(
        "POST", "/v1/automation/events", data=body, headers={"Content-Type": content_type, **told}
    )


async def accepted(gateway: Gateway) -> list[Envelope]:
    rows = await gateway.rows("select value from automation.outbox order by xid, id")
    return [decode_envelope(bytes(row["value"])) for row in rows]


async def test_a_whole_cloudevent_with_its_attributes_in_headers_too_is_read_from_its_body(gateway: Gateway) -> None:
    headers = {f"ce_{name}": value for name, value in CLOUD.items()}
    structured = await post(
        gateway, json.dumps({**CLOUD, "data": 1}).encode(), "application/cloudevents+json", **headers
    )
    batch = await post(gateway, json.dumps([CLOUD]).encode(), "application/cloudevents-batch+json", **headers)

    assert (structured.status, batch.status) == (202, 207)
    assert [one.data for one in await accepted(gateway)] == ["1"]
    refused = await post(gateway, b"{}", "application/cloudevents+xml", **headers)
    assert (refused.status, refused.body["code"]) == (415, "E_UNSUPPORTED_MEDIA_TYPE")


async def test_an_attribute_in_a_quoted_header_is_the_same_attribute(gateway: Gateway) -> None:
    plain = {f"ce_{name}": value for name, value in CLOUD.items()}
    first = await post(gateway, b"1", "application/json", **plain)
    quoted = {name: f'"{value}"' for name, value in plain.items()} | {"ce_subject": r'"an \"order\" %25"'}
    again = await post(gateway, b"1", "application/json", **quoted)
    other = await post(gateway, b"2", "application/json", **quoted, ce_correlationid="c", A44_Idempotency_Key="k")

    assert (first.status, again.status, again.body["event_id"]) == (202, 200, first.body["event_id"])
    assert other.status == 202
    assert [one.partition_key for one in await accepted(gateway)] == ["order-1", 'an "order" %']
