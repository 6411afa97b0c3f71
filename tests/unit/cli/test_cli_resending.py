"""`a44 automation events resend`: the same data through the same door, under a new key, to the last digit."""

import json

import pytest

from ops.cli.resending import member_text
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RUN, RestService, Seen

NEW = ("--idempotency-key", "order:1:v2")
DATA = '{"safe": 9007199254740993, "long":123456789012345678901234567890, "one":1.0, "much": 1e400, "text": "é }"}'


def shown(service: RestService, data: str = DATA, **members: str) -> None:
    """The run as the service tells it."""
    head = {"run_id": RUN, "workflow_id": "wf_x", "state": "failed", "event_id": "evt_0", "where": "{ input: 1 }"}
    text = json.dumps({**head, "idempotency_key": "k1", "partition_key": "k1", **members}).removesuffix("}")
    body = f'{text}, "input" : {data} , "attempts": []}}'
    service.state.answers[f"/v1/automation/runs/{RUN}"] = (200, body.encode(), "application/json")


def last(service: RestService) -> Seen:
    return service.state.seen[-1]


def test_a18_an_event_is_published_again_with_every_digit(a44: Command, logged_in: RestService) -> None:
    shown(logged_in, event_type="a.b", trigger_id="trg_y", partition_key="ana")
    outcome = a44("automation", "events", "resend", RUN, *NEW)
    assert (outcome.code, outcome.out) == (0, "1/1  202 evt_1   created\n")
    sent = last(logged_in).body.decode()
    assert last(logged_in).path == "/v1/automation/events"
    assert sent.endswith(f'"data": {DATA}}}')
    told = json.loads(sent)
    assert (told["type"], told["idempotency_key"], told["partition_key"]) == ("a.b", "order:1:v2", "ana")
    assert told["correlation_id"] == "evt_0"


def test_a_key_that_was_the_lane_is_not_the_lane_of_the_new_one(a44: Command, logged_in: RestService) -> None:
    shown(logged_in, event_type="a.b", correlation_id="c1")
    assert a44("automation", "events", "resend", RUN, *NEW).code == 0
    told = json.loads(last(logged_in).body)
    assert (told.get("partition_key"), told["correlation_id"]) == (None, "c1")


def test_a18_a_webhook_is_signed_and_sent_again_byte_for_byte(a44: Command, logged_in: RestService) -> None:
    shown(logged_in, event_type="webhook.x", trigger_id="trg_x")
    outcome = a44("automation", "events", "resend", RUN, *NEW, "--json")
    assert (outcome.code, outcome.document["status"]) == (0, "created")
    assert last(logged_in).body == DATA.encode()
    assert last(logged_in).headers["a44-idempotency-key"] == "order:1:v2"


def test_a_run_by_hand_is_started_again(a44: Command, logged_in: RestService) -> None:
    shown(logged_in, event_type="manual.x", trigger_id="trg_manual")
    assert a44("automation", "events", "resend", RUN, *NEW).code == 0
    assert last(logged_in).path == "/v1/automation/workflows/wf_x/runs"
    assert last(logged_in).body.decode() == f'{{"input":{DATA}}}'


def test_without_a_key_or_without_the_data_nothing_is_sent(a44: Command, logged_in: RestService) -> None:
    outcome = a44("automation", "events", "resend", RUN)
    assert (outcome.code, "E_IDEMPOTENCY_KEY_REQUIRED" in outcome.err) == (3, True)
    shown(logged_in, '{"data_ref": "s3://x", "data_size": 300000, "data_sha256": "00"}', event_type="a.b")
    outcome = a44("automation", "events", "resend", RUN, *NEW)
    assert (outcome.code, "300000 bytes) lies in storage" in outcome.err) == (2, True)
    body = json.dumps({"run_id": RUN, "state": "accepted"}).encode()
    logged_in.state.answers[f"/v1/automation/runs/{RUN}"] = (200, body, "application/json")
    outcome = a44("automation", "events", "resend", RUN, *NEW)
    assert (outcome.code, "not made yet" in outcome.err) == (2, True)
    assert {seen.method for seen in logged_in.state.seen} == {"GET"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"input":1.0}', "1.0"),
        (' { "a" : {"input": 2} , "input" : [ 1e5, {} ]\n}', "[ 1e5, {} ]"),
        ('{"a":"\\"input\\":3","input":"x"}', '"x"'),
        ('{"a":1}', None),
        ("{}", None),
    ],
)
def test_a_member_is_cut_out_as_it_stands(text: str, found: str | None) -> None:
    assert member_text(text, "input") == found
