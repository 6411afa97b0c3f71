"""The door for events over real HTTP and a real Postgres: one, many at once, and CloudEvents in each of their modes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.gateway.limits import Limits
from processors.ingest.ingest import Ingest
from processors.ports.runs import Grant
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, decode_envelope, encode_envelope
from schemas.relay_numbers import sealed
from tests.integration.gateway.conftest import PROJECT, WORKFLOW, Answer, Gateway
from tests.integration.gateway.histories import end_run

EVENTS = "/v1/automation/events"
CLOUD = {"specversion": "1.0", "type": "shop.order.paid", "source": "/shop/7", "id": "o-1", "subject": "order-1"}


@pytest.fixture
def limits() -> Limits:
    return Limits(body_seconds=2.0, batch=120)


async def post(gateway: Gateway, body: bytes, content_type: str, **headers: str) -> Answer:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.call("POST", EVENTS, data=body, headers={"Content-Type": content_type, **told})


async def accepted(gateway: Gateway) -> list[Envelope]:
    """What lies in the outbox, in order."""
    rows = await gateway.rows("select value from automation.outbox order by xid, id")
    return [decode_envelope(bytes(row["value"])) for row in rows]


def lines(*events: Mapping[str, Any]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in events)


async def test_an_event_is_durable_before_it_is_answered(gateway: Gateway) -> None:
    body = {
        "type": "billing.invoice.finalized",
        "data": {"invoiceId": "inv_1", "n": 2**70},
        "partition_key": "cust_1",
        "occurred_at": "2026-07-19T14:02:11.884+02:00",
    }
    answer = await gateway.call("POST", EVENTS, json=body, headers={"A44-Idempotency-Key": "k1"})
    assert (answer.status, answer.body["status"], answer.body["key_source"]) == (202, "created", "header")
    assert "run_id" not in answer.body
    [row] = await gateway.rows("select value from automation.outbox")
    envelope = decode_envelope(bytes(row["value"]))
    assert (envelope.id, envelope.type, envelope.trigger_id) == (answer.body["event_id"], body["type"], None)
    assert (envelope.partition_key, envelope.project_id) == ("cust_1", PROJECT)
    assert envelope.occurred_at == "2026-07-19T12:02:11.884000Z"
    assert str(2**70) in envelope.data
    again = await gateway.call("POST", EVENTS, json={**body, "idempotency_key": "k1"})
    assert (again.status, again.body["event_id"]) == (200, answer.body["event_id"])
    other = await gateway.call("POST", EVENTS, json={**body, "idempotency_key": "k1", "data": 1})
    assert (other.status, other.code) == (422, "E_IDEMPOTENCY_CONFLICT")


async def test_an_events_own_id_is_its_key_where_none_is_sent(gateway: Gateway) -> None:
    first = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1, "id": "evt_mine"})
    again = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1, "id": "evt_mine"})
    other = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 2, "id": "evt_mine"})
    assert [answer.status for answer in (first, again, other)] == [202, 200, 422]
    assert first.body["key_source"] == "id"
    keyless = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1})
    assert (keyless.status, keyless.body["key_source"]) == (202, "body")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"data": 1}, 400, "E_INVALID_PARAMETER"),
        ({"type": "a.b"}, 400, "E_INVALID_PARAMETER"),
        ({"type": "a.b", "data": 1, "extra": 1}, 400, "E_INVALID_PARAMETER"),
        ({"type": "", "data": 1}, 422, "E_ENVELOPE_INVALID"),
        ({"type": "a.b", "data": 1, "partition_key": " "}, 422, "E_ENVELOPE_INVALID"),
        ({"type": "a.b", "data": 1, "occurred_at": "2026-02-30T00:00:00Z"}, 422, "E_ENVELOPE_INVALID"),
        ({"type": "a.b", "data": 1, "idempotency_key": "  "}, 400, "E_IDEMPOTENCY_KEY_INVALID"),
        ({"type": "a.b", "data": 1, "idempotency_key": "\x00"}, 422, "E_BODY_UNSTORABLE"),
        (7, 400, "E_INVALID_PARAMETER"),
    ],
)
async def test_what_is_no_event_is_refused(gateway: Gateway, body: object, status: int, code: str) -> None:
    answer = await gateway.call("POST", EVENTS, json=body)
    assert (answer.status, answer.code) == (status, code)


async def test_header_and_body_may_not_name_different_keys(gateway: Gateway) -> None:
    answer = await gateway.call(
        "POST",
        EVENTS,
        json={"type": "a.b", "data": 1, "idempotency_key": "k1"},
        headers={"A44-Idempotency-Key": "k2"},
    )
    assert (answer.status, answer.code) == (400, "E_IDEMPOTENCY_KEY_INVALID")


async def test_b10_a_hundred_callers_of_one_new_key_make_one_event(gateway: Gateway) -> None:
    body = {"type": "a.b", "data": {"n": 1}, "idempotency_key": "k1"}
    answers = await asyncio.gather(*(gateway.call("POST", EVENTS, json=body) for _ in range(100)))
    assert sorted(answer.status for answer in answers) == [200] * 99 + [202]
    assert len({answer.body["event_id"] for answer in answers}) == 1
    assert len(await accepted(gateway)) == 1


@pytest.mark.parametrize("form", ["array", "lines", "lines of another system"])
async def test_a_batch_is_answered_event_by_event_in_its_order(gateway: Gateway, form: str) -> None:
    events = [{"type": "a.b", "data": {"n": n}, "idempotency_key": f"k{n}", "partition_key": "p"} for n in range(100)]
    if form == "array":
        answer = await gateway.call("POST", EVENTS, json=events)
    else:
        body = lines(*events) if form == "lines" else b"\r\n" + lines(*events).replace(b"\n", b"\r\n\r\n") + b"\r\n"
        answer = await post(gateway, body, "application/x-ndjson")
    assert answer.status == 207
    results = answer.body.pop("results")
    assert answer.body == {"created": 100, "deduplicated": 0, "conflict": 0, "refused": 0}
    assert {(one["status"], one["key_source"]) for one in results} == {("created", "body")}
    stored = await accepted(gateway)
    assert [one.id for one in stored] == [one["event_id"] for one in results]
    assert [one.data for one in stored] == [json.dumps({"n": n}) for n in range(100)] or form == "array"


async def test_one_bad_event_of_a_batch_fails_alone_and_says_why(gateway: Gateway) -> None:
    await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1, "idempotency_key": "old"})
    items = [
        b'{"type":"a.b","data":1,"idempotency_key":"k1"}',
        b'{"type":"a.b","data":{"x":1,"x":2}}',
        b'{"type":"a.b","data":"\\ud800"}',
        b'{"type":"","data":1}',
        b'{"data":1}',
        b'{"type":"a.b","data":1,"idempotency_key":"old"}',
        b'{"type":"a.b","data":2,"idempotency_key":"old"}',
        b'{"type":"a.b","data":1,"idempotency_key":"k1"}',
        b"7",
        b'{"type":"a.b","data":2,"idempotency_key":"k2"}',
    ]
    answer = await post(gateway, b"[" + b",".join(items) + b"]", "application/json")
    results = answer.body["results"]
    assert [one["status"] for one in results] == [
        "created", "refused", "refused", "refused", "refused", "deduplicated", "conflict", "deduplicated", "refused",
        "created",
    ]  # fmt: skip
    assert [one["error"]["code"] for one in results if "error" in one] == [
        "E_DUPLICATE_KEY", "E_BODY_UNSTORABLE", "E_ENVELOPE_INVALID", "E_INVALID_PARAMETER", "E_IDEMPOTENCY_CONFLICT",
        "E_INVALID_PARAMETER",
    ]  # fmt: skip
    assert all(one["error"]["status"] in {400, 422} and one["error"]["detail"] for one in results if "error" in one)
    assert results[7]["event_id"] == results[0]["event_id"]
    assert {name: answer.body[name] for name in ("created", "deduplicated", "conflict", "refused")} == {
        "created": 2, "deduplicated": 2, "conflict": 1, "refused": 5,
    }  # fmt: skip
    assert [one.idempotency_key for one in await accepted(gateway)] == ["old", "k1", "k2"]


async def test_a_broken_line_fails_alone(gateway: Gateway) -> None:
    answer = await post(
        gateway, b'{"type":"a.b","data":1}\n{"type":\n\xff\n{"type":"a.b","data":2}', "application/jsonl"
    )
    assert [one["status"] for one in answer.body["results"]] == ["created", "refused", "refused", "created"]


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-ndjson", "application/cloudevents-batch+json"]
)
async def test_an_empty_batch_holds_nothing(gateway: Gateway, content_type: str) -> None:
    answer = await post(gateway, b"" if "ndjson" in content_type else b" [ ] ", content_type)
    assert (answer.status, answer.body["results"]) == (207, [])


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
async def test_a_batch_is_bounded_in_number_and_in_bytes(gateway: Gateway, content_type: str) -> None:
    """The fixture allows 120 events."""
    events = [{"type": "a.b", "data": n} for n in range(121)]
    whole = json.dumps(events).encode() if content_type == "application/json" else lines(*events)
    answer = await post(gateway, whole, content_type)
    assert (answer.status, answer.code) == (413, "E_BATCH_TOO_LARGE")
    filled = lines({"type": "a.b", "data": "x" * 999_970})
    for more, code in ((1_000_000 - len(filled), None), (1_000_001 - len(filled), "E_BODY_TOO_LARGE")):
        answer = await post(gateway, filled + b" " * more, "application/x-ndjson")
        assert answer.body.get("code") == code
    assert len(await accepted(gateway)) == 1


async def test_a_batch_takes_no_key_of_the_header(gateway: Gateway) -> None:
    answer = await post(gateway, b"[]", "application/json", A44_Idempotency_Key="k1")
    assert (answer.status, answer.code) == (400, "E_IDEMPOTENCY_KEY_INVALID")


@pytest.mark.parametrize("body", [b"[1", b"[1,]", b"[1] 2"])
async def test_a_batch_that_cannot_be_taken_apart_is_refused_as_a_whole(gateway: Gateway, body: bytes) -> None:
    answer = await post(gateway, body, "application/json")
    assert (answer.status, answer.code) == (422, "E_JSON_INVALID")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/cloudevents", "application/jsonl; charset=latin-1"]
)
async def test_other_content_types_are_refused_with_those_that_are_taken(gateway: Gateway, content_type: str) -> None:
    answer = await post(gateway, b"{}", content_type)
    assert (answer.status, answer.code) == (415, "E_UNSUPPORTED_MEDIA_TYPE")
    assert "application/cloudevents-batch+json" in answer.body["detail"]


# the runs of an event


async def test_an_event_lists_its_runs_once_ingest_has_decided_it(gateway: Gateway, secret: str) -> None:
    body = {"type": "billing.invoice.finalized", "data": {"n": 1}, "idempotency_key": "k1"}
    sent = await gateway.call("POST", EVENTS, json=body)
    place = sent.headers["Location"]
    assert place == f"{EVENTS}/{sent.body['event_id']}"
    early = await gateway.call("GET", place)
    assert (early.status, early.code) == (404, "E_EVENT_NOT_FOUND")
    await ingested(gateway)
    answer = await gateway.call("GET", place)
    assert answer.status == 200
    assert (answer.body["event_id"], answer.body["taken_at"][-1]) == (sent.body["event_id"], "Z")
    (run,) = answer.body["runs"]
    assert (run["workflow_id"], run["version"], run["state"]) == ("wf_invoice_settle", "1", "granted")
    shown = await gateway.call("GET", f"/v1/automation/runs/{run['run_id']}")
    assert (shown.status, shown.body["event_id"]) == (200, sent.body["event_id"])
    await end_run(gateway.dsn, run["run_id"], state="failed", error_code="E_UPSTREAM_503")
    (ended,) = (await gateway.call("GET", place)).body["runs"]
    assert (ended["run_id"], ended["state"], ended["error_code"]) == (run["run_id"], "failed", "E_UPSTREAM_503")
    again = await gateway.call("POST", EVENTS, json=body)
    assert (again.status, again.headers["Location"]) == (200, place)


async def test_an_event_that_nothing_asked_for_has_no_runs(gateway: Gateway) -> None:
    sent = await gateway.call("POST", EVENTS, json={"type": "nobody.asked", "data": 1})
    await ingested(gateway)
    answer = await gateway.call("GET", sent.headers["Location"])
    assert (answer.status, answer.body["runs"]) == (200, [])


async def test_b09_events_of_a_producer_are_found_by_its_own_id_and_by_its_project_alone(
    gateway: Gateway, secret: str
) -> None:
    other = await gateway.tokens.create_token("pj_other", "tests", ["automation:write"])
    await gateway.publish({"settle.yaml": WORKFLOW}, token=other)
    for project in (PROJECT, "pj_other"):
        told = Envelope(
            id="signup 77/1", type="billing.invoice.finalized", idempotency_key="k", partition_key="p",
            occurred_at="2026-07-19T14:00:00Z", data='"' + project + '"', project_id=project,
        )  # fmt: skip
        await ingested(gateway, encode_envelope(told))
    found = [await gateway.call("GET", f"{EVENTS}/signup%2077%2F1", token=token) for token in (None, other)]
    runs = [run["run_id"] for answer in found for run in answer.body["runs"]]
    assert [answer.status for answer in found] == [200, 200]
    assert len(set(runs)) == 2
    for run, token in zip(runs, (None, other), strict=True):
        shown = await gateway.call("GET", f"/v1/automation/runs/{run}", token=token)
        assert shown.body["input"] == (PROJECT if token is None else "pj_other")


@pytest.mark.parametrize("event", ["evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "a%00b", "%ff", "x" * 300])
async def test_an_event_that_is_not_there_is_not_found(gateway: Gateway, event: str) -> None:
    answer = await gateway.call("GET", f"{EVENTS}/{event}")
    assert (answer.status, answer.code) == (404, "E_EVENT_NOT_FOUND")


async def test_runs_of_an_event_with_an_id_of_its_own_are_found_though_ingest_reckons_a_little_ahead(
    gateway: Gateway, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run has its time from ingest, which carries the database's clock on by its own."""
    reckoned = PostgresIngestLog.now
    monkeypatch.setattr(PostgresIngestLog, "now", lambda log: reckoned(log) + timedelta(seconds=2))
    told = Envelope(
        id="mine-1", type="billing.invoice.finalized", idempotency_key="k", partition_key="p",
        occurred_at="2026-07-19T14:00:00Z", data="1", project_id=PROJECT,
    )  # fmt: skip
    await ingested(gateway, encode_envelope(told))
    answer = await gateway.call("GET", f"{EVENTS}/mine-1")
    assert [run["workflow_id"] for run in answer.body["runs"]] == ["wf_invoice_settle"]


async def ingested(gateway: Gateway, *direct: bytes) -> None:
    """Ingest takes what lies in the outbox, as the relay publishes it, or records straight from Kafka."""
    rows = await gateway.rows("select value from automation.outbox order by xid, id")
    relayed = [bytes(row["value"]) for row in rows] if not direct else []
    async with open_pool(gateway.dsn, "test") as pool, aclosing(PostgresIngestLog(gateway.dsn, "dead", 60.0)) as log:
        known = await log.positions("events", "topic-1", [0])
        offset = known.get(0, 0)
        records = [
            Record(
                "events",
                0,
                offset + n,
                b"k",
                value,
                sealed(log.seal_key(), "events", 0, n + 1, value) if relayed else (),
                0,
            )
            for n, value in enumerate(relayed or direct)
        ]
        await Ingest(log, CurrentCatalog(PostgresCatalog(pool)), Silent())(records)


class Silent:
    def granted(self, grants: Sequence[Grant]) -> None:
        """Nobody listens."""


# CloudEvents


async def test_a_structured_cloudevent_is_taken_with_source_and_id_as_its_key(gateway: Gateway) -> None:
    body = json.dumps({**CLOUD, "time": "2026-07-19T14:02:11+02:00", "data": {"n": 2**70}}).encode()
    first = await post(gateway, body, "application/cloudevents+json; charset=UTF-8")
    again = await post(gateway, body, "application/cloudevents+json")
    assert [first.status, again.status] == [202, 200]
    assert first.body["key_source"] == "cloudevent"
    assert again.body["event_id"] == first.body["event_id"]
    (stored,) = await accepted(gateway)
    assert (stored.id, stored.type, stored.project_id) == (first.body["event_id"], "shop.order.paid", PROJECT)
    assert (stored.idempotency_key, stored.partition_key, stored.correlation_id) == ("/shop/7 o-1", "order-1", "o-1")
    assert stored.occurred_at == "2026-07-19T12:02:11Z"
    assert stored.data == '{"n": 1180591620717411303424}'


async def test_a_binary_cloudevent_has_its_attributes_in_headers_and_its_data_byte_for_byte(gateway: Gateway) -> None:
    headers = {f"ce_{name}": value for name, value in CLOUD.items()} | {"ce_subject": "caf%C3%A9%20%22x%22"}
    answer = await post(gateway, b'{ "rate" : 1.0 }', "application/vnd.shop+json", **headers)
    assert answer.status == 202
    (stored,) = await accepted(gateway)
    assert (stored.idempotency_key, stored.partition_key) == ("/shop/7 o-1", 'caf\u00e9 "x"')
    assert stored.data == '{ "rate" : 1.0 }'
    structured = json.dumps({**CLOUD, "data": 1}).encode()
    other = await post(gateway, structured, "application/cloudevents+json")
    assert (other.status, other.code) == (422, "E_IDEMPOTENCY_CONFLICT")  # one event, however it is carried


async def test_a_batch_of_cloudevents_is_answered_one_by_one(gateway: Gateway) -> None:
    events = [{**CLOUD, "data": 1}, {**CLOUD, "id": "o-2"}, {**CLOUD, "id": ""}, {**CLOUD, "data": 1}]
    answer = await post(gateway, json.dumps(events).encode(), "application/cloudevents-batch+json")
    results = answer.body["results"]
    assert [one["status"] for one in results] == ["created", "created", "refused", "deduplicated"]
    assert results[2]["error"]["code"] == "E_CLOUDEVENT_INVALID"
    assert results[2]["error"]["field"] == "id"
    assert [one.data for one in await accepted(gateway)] == ["1", "null"]


async def test_a_key_of_the_header_stands_in_for_the_one_of_a_cloudevent(gateway: Gateway) -> None:
    body = json.dumps({**CLOUD, "subject": None, "data": 1}).encode()
    answer = await post(gateway, body, "application/cloudevents+json", A44_Idempotency_Key="k1")
    assert (answer.status, answer.body["key_source"]) == (202, "header")
    (stored,) = await accepted(gateway)
    assert (stored.idempotency_key, stored.partition_key) == ("k1", "k1")


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"ce_id": ""}, b"1", 422, "E_CLOUDEVENT_INVALID"),
        ({"ce_specversion": "2.0"}, b"1", 422, "E_CLOUDEVENT_INVALID"),
        ({"ce_id": "%ff"}, b"1", 422, "E_CLOUDEVENT_INVALID"),
        ({"ce_project": "pj_other"}, b"1", 422, "E_CLOUDEVENT_INVALID"),
        ({"Content_Type": "text/plain"}, b"hello", 422, "E_CLOUDEVENT_INVALID"),
        ({"Content_Encoding": "gzip"}, b"1", 415, "E_UNSUPPORTED_MEDIA_TYPE"),
        ({}, b'{"a":1,"a":2}', 422, "E_DUPLICATE_KEY"),
        ({}, b"{", 422, "E_JSON_INVALID"),
    ],
)
async def test_a_cloudevent_that_is_none_is_refused(
    gateway: Gateway, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    told = {f"ce_{name}": value for name, value in CLOUD.items()} | headers
    content_type = told.pop("Content_Type", "application/json")
    answer = await post(gateway, body, content_type, **told)
    assert (answer.status, answer.code) == (status, code)
    assert await accepted(gateway) == []
