"""The webhook door over real HTTP and a real Postgres: what is taken, what is refused and in which order."""

import asyncio
import json
import time

import pytest
from structlog.testing import capture_logs

from schemas.envelope import decode_envelope
from tests.integration.gateway.conftest import PROJECT, WORKFLOW, Gateway, raw


async def test_a_signed_body_is_taken_and_its_envelope_lies_in_the_outbox(gateway: Gateway, secret: str) -> None:
    body = b'{"invoiceId": "inv_1", "amount":  3544790567247868102, "rate": 1.0}'
    answer = await gateway.hook(secret, body, key="invoice:inv_1:v1")
    assert answer.status == 202
    assert answer.body["status"] == "created"
    assert answer.body["key_source"] == "header"
    assert answer.body["run_id"].startswith("run_")
    rows = await gateway.rows("select topic, partition_key, value from automation.outbox")
    assert [(row["topic"], row["partition_key"]) for row in rows] == [("a44.events.v1", "invoice:inv_1:v1")]
    envelope = decode_envelope(bytes(rows[0]["value"]))
    assert envelope.data.encode() == body
    assert envelope.id == answer.body["event_id"]
    assert (envelope.type, envelope.trigger_id, envelope.project_id) == ("webhook.settle", "trg_settle", PROJECT)


async def test_a_webhook_travels_by_the_lane_of_its_run_so_that_a_lane_keeps_the_order_of_acceptance(
    gateway: Gateway, secret: str
) -> None:
    lanes = 'concurrency: {max: 5, partitionKey: "{{ input.order }}"}\nsteps:'
    await gateway.publish({"settle.yaml": WORKFLOW.replace("version: 1", "version: 2").replace("steps:", lanes)})
    for number, order in enumerate(["o1", "o2", "o1"]):
        body = json.dumps({"order": order, "number": number}).encode()
        assert (await gateway.hook(secret, body, key=f"k{number}")).status == 202
    rows = await gateway.rows("select partition_key, value from automation.outbox order by xid, id")
    assert [row["partition_key"] for row in rows] == ["o1", "o2", "o1"]
    assert [decode_envelope(bytes(row["value"])).partition_key for row in rows] == ["k0", "k1", "k2"]


async def test_the_same_key_and_body_answer_the_first_run_with_the_age_of_the_key(
    gateway: Gateway, secret: str
) -> None:
    first = await gateway.hook(secret, b'{"a": 1}', key="k1")
    second = await gateway.hook(secret, b'{"a": 1}', key="k1")
    assert (first.status, second.status) == (202, 200)
    assert second.body["status"] == "deduplicated"
    assert second.body["run_id"] == first.body["run_id"]
    assert second.body["state"] == "accepted"
    assert 0 <= second.body["key_age_seconds"] < 60


async def test_without_a_key_the_body_decides(gateway: Gateway, secret: str) -> None:
    first = await gateway.hook(secret, b'{"a": 1}')
    again = await gateway.hook(secret, b'{"a": 1}')
    other = await gateway.hook(secret, b'{"a": 2}')
    assert [answer.status for answer in (first, again, other)] == [202, 200, 202]
    assert first.body["key_source"] == again.body["key_source"] == "body"
    assert again.body["run_id"] == first.body["run_id"] != other.body["run_id"]


async def test_case_B01_same_key_with_another_body_is_a_conflict_and_both_hashes_are_logged(
    gateway: Gateway, secret: str
) -> None:
    await gateway.hook(secret, b'{"amount": 100}', key="k1")
    with capture_logs() as logs:
        answer = await gateway.hook(secret, b'{"amount": 900}', key="k1")
    assert (answer.status, answer.code) == (422, "E_IDEMPOTENCY_CONFLICT")
    entry = next(entry for entry in logs if entry["event"] == "idempotency_conflict")
    assert len(entry["first_body"]) == len(entry["this_body"]) == 64
    assert entry["first_body"] != entry["this_body"]
    assert entry["first_body"] not in json.dumps(answer.body)
    assert len(await gateway.rows("select id from automation.outbox")) == 1


async def test_case_B09_two_projects_may_use_the_same_key(gateway: Gateway, secret: str) -> None:
    other = await gateway.tokens.create_token("pj_other", "tests", ["automation:write"])
    published = await gateway.publish({"settle.yaml": WORKFLOW}, token=other)
    theirs = published.body["webhooks"][0]["secret"]
    assert theirs != secret
    ours = await gateway.hook(secret, b'{"a": 1}', key="k1")
    answer = await gateway.hook(theirs, b'{"a": 2}', key="k1", project="pj_other")
    assert (ours.status, answer.status) == (202, 202)
    assert answer.body["run_id"] != ours.body["run_id"]
    refused = await gateway.hook(secret, b'{"a": 2}', key="k2", project="pj_other")
    assert (refused.status, refused.code) == (401, "E_SIGNATURE")


async def test_case_B10_a_hundred_callers_of_one_new_key_make_one_run(gateway: Gateway, secret: str) -> None:
    answers = await asyncio.gather(*(gateway.hook(secret, b'{"a": 1}', key="k1") for _ in range(100)))
    assert sorted(answer.status for answer in answers) == [200] * 99 + [202]
    assert len({answer.body["run_id"] for answer in answers}) == 1
    assert len(await gateway.rows("select id from automation.outbox")) == 1


@pytest.mark.parametrize(
    "body",
    [
        rb'{"text": "\u001B[0m \u2665 \u001b"}',
        '{"text": "a\u00e9\u20ac\U0001f600"}'.encode(),
        b'{ "spaced" :\n\t[1, 2 ] }\n',
    ],
    ids=["escapes in mixed case", "one to four bytes a character", "spaces"],
)
async def test_case_A01_and_A03_the_signature_is_over_the_bytes_as_sent(
    gateway: Gateway, secret: str, body: bytes
) -> None:
    assert (await gateway.hook(secret, body)).status == 202
    rows = await gateway.rows("select value from automation.outbox")
    assert decode_envelope(bytes(rows[0]["value"])).data.encode() == body


async def test_case_A03_a_byte_order_mark_is_signed_and_then_refused_as_json(gateway: Gateway, secret: str) -> None:
    answer = await gateway.hook(secret, b'\xef\xbb\xbf{"a": 1}')
    assert (answer.status, answer.code) == (422, "E_JSON_INVALID")


async def test_case_A05_signing_other_bytes_than_are_sent_is_told_apart_in_words(gateway: Gateway, secret: str) -> None:
    signature = "0" * 64
    answer = await gateway.hook(secret, b'{"a":1}', signature=signature)
    assert (answer.status, answer.code) == (401, "E_SIGNATURE")
    assert "exact bytes" in answer.body["detail"]
    assert answer.headers["Content-Type"].startswith("application/problem+json")


async def test_case_A08_duplicate_keys_are_refused_at_any_depth_after_the_signature(
    gateway: Gateway, secret: str
) -> None:
    body = b'{"order": [{"qty": 1, "qty": -1}]}'
    unsigned = await gateway.hook(secret, body, signature="0" * 64)
    assert unsigned.status == 401
    answer = await gateway.hook(secret, body)
    assert (answer.status, answer.code) == (422, "E_DUPLICATE_KEY")


async def test_case_A10_a_signature_that_is_no_ascii_is_merely_wrong(gateway: Gateway, secret: str) -> None:
    answer = await gateway.hook(secret, b"{}", signature="sha256=\u00e9")
    assert (answer.status, answer.code) == (401, "E_SIGNATURE")
    assert gateway.measures.value("webhook_rejected_total", "E_SIGNATURE") == 1


async def test_case_A10_bytes_that_are_no_text_in_headers_are_refused_without_a_trace(
    gateway: Gateway, secret: str
) -> None:
    head = (
        b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"A44-Timestamp: 1\r\nA44-Signature: sha256=\xe9\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    )
    answer = await raw(gateway, head)
    assert b"401 " in answer
    assert b"Traceback" not in answer
    assert gateway.measures.value("webhook_rejected_total", "E_SIGNATURE") == 1
    assert b"E_TOKEN" in await raw(
        gateway,
        b"GET /v1/automation/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xe9\r\nConnection: close\r\n\r\n",
    )


@pytest.mark.parametrize("off", [-600, 600])
async def test_case_A11_a_clock_that_is_off_either_way_is_told_to_sign_again(
    gateway: Gateway, secret: str, off: int
) -> None:
    answer = await gateway.hook(secret, b"{}", timestamp=str(int(time.time()) + off))
    assert (answer.status, answer.code) == (408, "E_TIMESTAMP_SKEW")
    assert "sign again" in answer.body["detail"]
    assert abs(answer.body["server_time"] - time.time()) < 60


@pytest.mark.parametrize("timestamp", ["", "soon", "1e9", "-5", "\u0663\u0663", "9" * 400])
async def test_a_timestamp_that_is_no_unix_time_is_refused(gateway: Gateway, secret: str, timestamp: str) -> None:
    answer = await gateway.hook(secret, b"{}", timestamp=timestamp)
    assert (answer.status, answer.code) == (408, "E_TIMESTAMP_SKEW")


async def test_the_signature_is_judged_before_the_timestamp(gateway: Gateway, secret: str) -> None:
    answer = await gateway.hook(secret, b"{}", timestamp="1", signature="0" * 64)
    assert answer.status == 401


async def test_an_unknown_trigger_is_answered_like_a_wrong_signature(gateway: Gateway, secret: str) -> None:
    wrong = await gateway.hook(secret, b"{}", signature="0" * 64)
    unknown = await gateway.hook(secret, b"{}", trigger="trg_nothing")
    not_a_hook = await gateway.hook(secret, b"{}", trigger="trg_invoice_settle_event")
    alike = {(answer.status, answer.code, answer.body["detail"]) for answer in (wrong, unknown, not_a_hook)}
    assert len(alike) == 1


async def test_a_body_of_exactly_one_megabyte_is_taken_and_one_byte_more_is_not(gateway: Gateway, secret: str) -> None:
    body = b'"' + b"x" * 999_998 + b'"'
    assert (await gateway.hook(secret, body)).status == 202
    answer = await gateway.hook(secret, body + b" ")
    assert (answer.status, answer.code) == (413, "E_BODY_TOO_LARGE")
    rows = await gateway.rows("select length(value) as size from automation.outbox")
    assert rows[0]["size"] < 1_048_588  # case A20: what a broker takes by default


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (rb'{"a":"x\u0000y"}', "E_BODY_UNSTORABLE"),
        (rb'{"a":"\ud800"}', "E_BODY_UNSTORABLE"),
        (rb'{"a": NaN}', "E_JSON_INVALID"),
        (rb'{"a": 1e400}', "E_JSON_INVALID"),
        (b"", "E_JSON_INVALID"),
        (b"\xff", "E_JSON_INVALID"),
        (b"[" * 5000, "E_JSON_INVALID"),
    ],
)
async def test_case_A17_what_cannot_be_stored_or_read_is_refused(
    gateway: Gateway, secret: str, body: bytes, code: str
) -> None:
    answer = await gateway.hook(secret, body)
    assert (answer.status, answer.code) == (422, code)


async def test_case_A17_text_that_merely_spells_an_escape_is_left_alone(gateway: Gateway, secret: str) -> None:
    assert (await gateway.hook(secret, rb'{"a":"\\u0000"}')).status == 202


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Encoding": "gzip"},
    ],
)
async def test_other_content_is_refused(gateway: Gateway, secret: str, headers: dict[str, str]) -> None:
    answer = await gateway.hook(secret, b"{}", headers=headers)
    assert (answer.status, answer.code) == (415, "E_UNSUPPORTED_MEDIA_TYPE")


async def test_json_with_its_charset_named_is_taken(gateway: Gateway, secret: str) -> None:
    answer = await gateway.hook(secret, b"{}", headers={"Content-Type": 'Application/JSON; charset="UTF-8"'})
    assert answer.status == 202


async def test_only_post_is_taken_and_the_answer_says_so(gateway: Gateway) -> None:
    answer = await gateway.call("GET", f"/v1/{PROJECT}/trg_settle")
    assert (answer.status, answer.code) == (405, "E_METHOD_NOT_ALLOWED")
    assert answer.headers["Allow"] == "POST"


@pytest.mark.parametrize("key", ["", "   ", "x" * 256, "a\u0085b"])
async def test_keys_that_are_not_usable_are_refused(gateway: Gateway, secret: str, key: str) -> None:
    answer = await gateway.hook(secret, b"{}", key=key)
    assert (answer.status, answer.code) == (400, "E_IDEMPOTENCY_KEY_INVALID")


async def test_a_key_of_255_characters_beyond_ascii_is_kept_whole(gateway: Gateway, secret: str) -> None:
    key = "\u00e9\U0001f600x" * 85
    assert (await gateway.hook(secret, b"{}", key=key)).status == 202
    rows = await gateway.rows("select idempotency_key from automation.idempotency_keys")
    assert rows[0]["idempotency_key"] == key


async def test_a_slow_body_is_given_up(gateway: Gateway) -> None:
    head = (
        b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 20\r\n\r\n{"
    )
    answer = await raw(gateway, head)
    assert b" 408 " in answer
    assert b"E_BODY_TIMEOUT" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: \x00\r\n\r\n",
        (
            b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"
        ),
    ],
)
async def test_what_is_no_http_gets_a_problem_document_too(gateway: Gateway, head: bytes) -> None:
    answer = await raw(gateway, head)
    assert answer.startswith(b"HTTP/1.")
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"application/problem+json" in answer
    assert b"Traceback" not in answer


FILTERED = """
- id: trg_large
  type: webhook
  workflow: wf_invoice_settle
  filter: "data.amount > 1000"
  partitionKey: "{{ data.customer }}"
  requireIdempotencyKey: true
"""


async def test_a_filter_is_asked_at_the_door(gateway: Gateway, secret: str) -> None:
    published = await gateway.publish({"settle.yaml": WORKFLOW, "triggers.yaml": FILTERED})
    assert published.status == 200, published.body
    large = next(hook["secret"] for hook in published.body["webhooks"] if hook["trigger_id"] == "trg_large")
    asked = {"trigger": "trg_large"}
    missed = await gateway.hook(large, b'{"amount": 5, "customer": "c1"}', key="k1", **asked)
    absent = await gateway.hook(large, b'{"customer": "c1"}', key="k2", **asked)
    wrong = await gateway.hook(large, b'{"amount": "much", "customer": "c1"}', key="k3", **asked)
    taken = await gateway.hook(large, b'{"amount": 5000, "customer": "c1"}', key="k4", **asked)
    keyless = await gateway.hook(large, b'{"amount": 5000, "customer": "c1"}', **asked)
    laneless = await gateway.hook(large, b'{"amount": 5000}', key="k5", **asked)
    assert (missed.status, missed.body) == (202, {"status": "filtered"})
    assert (absent.status, absent.body) == (202, {"status": "filtered"})
    assert (wrong.status, wrong.code) == (422, "E_FILTER_ERROR")
    assert taken.status == 202
    assert (keyless.status, keyless.code) == (400, "E_IDEMPOTENCY_KEY_REQUIRED")
    assert (laneless.status, laneless.code) == (422, "E_EXPRESSION")
    rows = await gateway.rows("select partition_key from automation.outbox")
    assert [row["partition_key"] for row in rows] == ["c1"]
