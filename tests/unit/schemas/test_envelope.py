"""Envelopes: the guide's example, both encodings, and each field's refusal by name."""

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro import RecordCodec
from schemas.commands import MOST_A_RECORD, StepCommand, decode_commands, encode_commands
from schemas.envelope import (
    Envelope,
    body_hash,
    checked,
    decode_envelope,
    encode_envelope,
)
from schemas.errors import Refused
from schemas.run_events import RunEvent, decode_run_event, encode_run_event

GUIDE = b"""{
  "id": "evt_01J9XQ7M4K",
  "type": "billing.invoice.finalized",
  "idempotency_key": "invoice:inv_8812:finalized:v1",
  "partition_key": "cust_4471",
  "occurred_at": "2026-07-19T14:02:11.884Z",
  "attempt": 1,
  "data": { "invoiceId": "inv_8812", "amountCents": 249900 }
}"""
FULL = Envelope(
    id="evt_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    type="a.b",
    idempotency_key="k",
    partition_key="p",
    occurred_at="2026-07-19T14:02:11Z",
    attempt=2,
    data='{"n":1.0,"big":1180591620717411303424,"t":"\u00e9"}',
    trigger_id="trg_x",
    project_id="acme",
    correlation_id="c",
    operation_version=3,
    redrive_count=1,
)
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40).filter(str.strip)


def told(**changes: Any) -> bytes:
    fields = {**json.loads(GUIDE), "project_id": "acme"} | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def refusal(data: bytes, project: str | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        decode_envelope(data, project)
    assert caught.value.code == "E_ENVELOPE_INVALID"
    return caught.value


def test_the_example_of_the_guide_is_an_envelope_whose_data_keeps_its_bytes():
    envelope = decode_envelope(GUIDE, "acme")
    assert envelope.data == '{ "invoiceId": "inv_8812", "amountCents": 249900 }'
    assert (envelope.project_id, envelope.attempt, envelope.operation_version) == ("acme", 1, 1)
    assert (envelope.redrive_count, envelope.trigger_id, envelope.correlation_id) == (0, None, None)
    assert decode_envelope(encode_envelope(envelope)) == envelope


def test_every_field_survives_avro():
    assert decode_envelope(encode_envelope(FULL)) == FULL
    assert encode_envelope(FULL)[:2] == b"\xc3\x01"


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 2**31 - 1), st.one_of(st.none(), TEXTS))
def test_any_envelope_survives_both_encodings(
    key: str, partition: str, body: str, attempt: int, correlation: str | None
):
    fields = {
        "idempotency_key": key,
        "partition_key": partition,
        "attempt": attempt,
        "correlation_id": correlation,
    }
    envelope = decode_envelope(told(**fields, data=body))
    assert envelope.data == json.dumps(body)
    assert decode_envelope(encode_envelope(envelope)) == envelope
    assert checked(envelope) == envelope


@pytest.mark.parametrize("text", ["a\u00adb", "a\u2028b", "\ue000", " a ", "\u200b"])
def test_a_text_need_not_be_printable_where_it_holds_no_control_characters(text: str):
    assert decode_envelope(told(correlation_id=text)).correlation_id == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ...),
        ("id", ""),
        ("id", 7),
        ("id", "a\nb"),
        ("type", ...),
        ("type", "x" * 256),
        ("idempotency_key", ...),
        ("idempotency_key", "   "),
        ("idempotency_key", "a\u0085b"),
        ("partition_key", None),
        ("partition_key", "a\n"),
        ("occurred_at", ...),
        ("occurred_at", "yesterday"),
        ("occurred_at", "2026-02-30T00:00:00Z"),
        ("occurred_at", "2026-07-19T14:02:11"),
        ("occurred_at", "0001-01-01T00:00:00+10:00"),
        ("occurred_at", "2026-07-19T14:02:60Z"),
        ("attempt", 0),
        ("attempt", True),
        ("attempt", 2**31),
        ("data", ...),
        ("trigger_id", ""),
        ("trigger_id", "a\u009fb"),
        ("correlation_id", "\u3000\u2028"),
        ("project_id", ...),
        ("project_id", "automation"),
        ("project_id", "Acme"),
        ("operation_version", 0),
        ("redrive_count", -1),
    ],
)
def test_a_field_that_does_not_fit_is_named(field: str, value: Any):
    refused = refusal(told(**{field: value}))
    assert refused.details == {"field": field}
    assert field in refused.message
    assert "\\x00" not in refused.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"\xc3\x01",
        b"\xc3\x28",
        b"\x00\x00\x00\x00\x01abc",
        GUIDE[:-1] + b',"id":"other"}',
        told(data={"a": "\0"}),
        told(type="\ud800"),
        GUIDE.replace(b"249900", b"NaN"),
        GUIDE.replace(b"249900", b'{"b":1,"b":2}'),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_envelope_is_refused(data: bytes):
    refusal(data, "acme")


def test_avro_data_that_is_not_json_is_refused_by_name():
    broken = Envelope(**{name: getattr(FULL, name) for name in FULL.__struct_fields__} | {"data": "{"})
    assert refusal(encode_envelope(broken)).details == {"field": "data"}
    with pytest.raises(Refused, match="data"):
        checked(broken)


def test_a_time_finer_than_a_microsecond_is_cut_and_never_rounded_into_a_year_that_cannot_be_read():
    assert (
        decode_envelope(told(occurred_at="9999-12-31T23:59:59.9999999Z")).occurred_at == "9999-12-31T23:59:59.999999Z"
    )
    assert decode_envelope(told(occurred_at="2026-07-19T14:02:11.123456789Z")).occurred_at.endswith(":11.123456Z")


def test_times_of_other_zones_become_utc_and_utc_is_left_as_it_was():
    assert decode_envelope(told(occurred_at="2026-07-19T23:30:00.5-03:00")).occurred_at == "2026-07-20T02:30:00.500000Z"
    assert decode_envelope(told(occurred_at="2026-07-19T23:30:00.884Z")).occurred_at == "2026-07-19T23:30:00.884Z"


def test_the_project_told_wins_over_the_default():
    assert decode_envelope(told(), "other").project_id == "acme"
    assert decode_envelope(told(project_id=...), "other").project_id == "other"


def test_a_field_of_a_later_version_is_passed_over():
    assert decode_envelope(told(later=[1])) == decode_envelope(told())


def test_the_hash_is_over_the_text_as_sent():
    assert body_hash('{"a":1}') != body_hash('{"a": 1}')
    assert body_hash("{}").hex().startswith("44136fa355b3678a")


def test_run_events_carry_a_computed_id():
    event = RunEvent(
        run_id="run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        project_id="acme",
        workflow_id="wf_x",
        version="3-dev.2",
        state="failed",
        occurred_at="2026-07-19T14:02:11Z",
        sequence=4,
        error_code="E_UPSTREAM_503",
    )
    assert event.id == "rev_01ARZ3NDEKTSV4RRFFQ69G5FAV_4"
    assert decode_run_event(encode_run_event(event)) == event
    with pytest.raises(Refused, match="no run event"):
        decode_run_event(encode_envelope(FULL))


def test_commands_are_read_poll_by_poll():
    commands = [StepCommand("run_a", 1), StepCommand("run_b", 2**31 - 1)]
    answers = decode_commands([*encode_commands(commands), None, b"?"])
    assert answers[:2] == commands
    assert [type(answer) for answer in answers[2:]] == [Refused, Refused]


def test_a_record_of_commands_is_bounded():
    commands = [StepCommand(f"run_{number}", number) for number in range(2 * MOST_A_RECORD + 1)]
    records = encode_commands(commands)
    assert len(records) == 3
    assert decode_commands(records) == commands
    assert encode_commands([]) == []


def test_a_command_of_the_first_version_is_one_command():
    schema = json.loads(files("schemas").joinpath("avro", "step_command.v1.avsc").read_text("utf-8"))
    record = RecordCodec([schema]).encode({"run_id": "run_a", "fence": 3})
    assert decode_commands([record]) == [StepCommand("run_a", 3)]
