"""CloudEvents as envelopes: the examples of the specification, what names an event, and what is refused by name."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import cloudevents
from schemas.cloudevents import CloudEvent, envelope_of, from_binary, from_structured, is_json, split_batch
from schemas.envelope import Envelope, decode_envelope, encode_envelope
from schemas.errors import Refused

NOW = "2026-07-19T14:02:11.884Z"
SPOKEN: dict[str, Any] = {
    "specversion": "1.0",
    "type": "com.github.pull_request.opened",
    "source": "https://github.com/cloudevents/spec/pull",
    "subject": "123",
    "id": "A234-1234-1234",
    "time": "2018-04-05T17:31:00Z",
}


def structured(**fields: Any) -> CloudEvent:
    told = {name: value for name, value in {**SPOKEN, **fields}.items() if value is not ...}
    return from_structured(json.dumps(told).encode())


def told(event: CloudEvent) -> Envelope:
    return envelope_of(event, project_id="acme", received_at=NOW)


def test_the_example_of_the_specification_is_an_envelope() -> None:
    envelope = told(structured(data={"big": 3544790567247868102, "one": 1.0}))
    assert envelope.type == "com.github.pull_request.opened"
    assert envelope.id == envelope.idempotency_key == "https://github.com/cloudevents/spec/pull A234-1234-1234"
    assert envelope.partition_key == "123"
    assert envelope.occurred_at == "2018-04-05T17:31:00Z"
    assert envelope.correlation_id == "A234-1234-1234"
    assert envelope.data == '{"big": 3544790567247868102, "one": 1.0}'
    assert decode_envelope(encode_envelope(envelope)) == envelope


def test_structured_and_binary_say_the_same() -> None:
    data = b'{ "a" : 1.0 }'
    whole = from_structured(
        json.dumps({**SPOKEN, "data": ...}, default=lambda _: "@").replace('"@"', data.decode()).encode()
    )
    assert from_binary(SPOKEN, data) == whole
    assert whole.data == data.decode()


def test_extensions_say_the_lane_and_the_trace_and_others_are_passed_over() -> None:
    event = structured(
        partitionkey="customer-7", correlationid="trace-1", project="acme", sampledrate=30, comexampleon=True
    )
    envelope = told(event)
    assert (envelope.partition_key, envelope.correlation_id, event.project) == ("customer-7", "trace-1", "acme")


def test_without_a_time_it_is_when_it_came_and_an_event_id_that_was_drawn_is_kept() -> None:
    event = structured(time=...)
    assert told(event).occurred_at == NOW
    drawn = envelope_of(event, project_id="acme", received_at=NOW, event_id="evt_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (drawn.id, drawn.idempotency_key) == ("evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", event.key)


@pytest.mark.parametrize(
    "time", ["2018-04-05t17:31:00z", "2018-04-05T17:31:00+02:00", "2018-04-05T17:31:00.123456789Z"]
)
def test_every_way_to_write_a_time_is_taken(time: str) -> None:
    assert told(structured(time=time)).occurred_at.endswith("Z")


def test_the_same_id_from_another_source_is_another_event() -> None:
    assert structured().key != structured(source="/other").key


NAMES = st.tuples(st.text("ab/#:", min_size=1), st.text("ab /#:", min_size=1))


@given(NAMES, NAMES)
def test_source_and_id_do_not_run_into_each_other(one: tuple[str, str], other: tuple[str, str]) -> None:
    first = msgspec.structs.replace(structured(), source=one[0], id=one[1])
    second = msgspec.structs.replace(first, source=other[0], id=other[1])
    assert (first.key == second.key) == (one == other)


def test_names_longer_than_a_key_are_hashed() -> None:
    long, other = structured(id="x" * 300), structured(id="x" * 299)
    assert len(long.key) < 100
    assert long.key != other.key
    assert told(long).correlation_id is None


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ({}, "null"),
        ({"data": None}, "null"),
        ({"data": "<much/>", "datacontenttype": "text/xml"}, '"<much/>"'),
        ({"data_base64": base64.b64encode(b'{"a":1}').decode()}, '{"a":1}'),
        ({"data": [1, 2], "datacontenttype": "application/vnd.shop+json; charset=utf-8"}, "[1, 2]"),
        ({"data": 1, "dataschema": None, "subject": None}, "1"),
    ],
)
def test_data_is_json_and_stays_as_it_was_written(fields: dict[str, Any], data: str) -> None:
    assert told(structured(**fields)).data == data


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": ...}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"source": ...}, "source"),
        ({"source": "not a reference"}, "source"),
        ({"type": "a\nb"}, "type"),
        ({"type": "t" * 256}, "type"),
        ({"specversion": "0.3"}, "specversion"),
        ({"specversion": ...}, "specversion"),
        ({"time": "yesterday"}, "time"),
        ({"time": "2018-02-30T00:00:00Z"}, "time"),
        ({"partitionkey": "p" * 256}, "partitionkey"),
        ({"subject": "s" * 256}, "subject"),
        ({"subject": "s", "partitionkey": "p" * 256}, "partitionkey"),
        ({"data": 1, "data_base64": "MQ=="}, "data_base64"),
        ({"data_base64": "?"}, "data_base64"),
        ({"data_base64": "AAEC", "datacontenttype": "image/png"}, "datacontenttype"),
    ],
)
def test_what_is_no_event_is_refused_by_the_name_of_the_attribute(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        told(structured(**fields))
    assert (caught.value.code, caught.value.details["field"]) == ("E_CLOUDEVENT_INVALID", field)


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null"])
def test_what_is_no_object_is_no_event(body: bytes) -> None:
    with pytest.raises(Refused, match="one JSON object"):
        from_structured(body)


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":1,"a":2}', b'{"id":"\\u0000"}', b"\xff"])
def test_what_strict_json_refuses_is_refused_with_its_code(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        from_structured(body)
    assert caught.value.code in {"E_JSON_INVALID", "E_DUPLICATE_KEY", "E_BODY_UNSTORABLE"}


def test_a_batch_is_split_into_its_events_byte_for_byte() -> None:
    assert split_batch(b'[{"a": 1.0} , 7]', 9) == [b'{"a": 1.0}', b"7"]
    assert split_batch(b'[{"a":1,"a":2},{}]', 9) == [b'{"a":1,"a":2}', b"{}"]  # the first alone is refused
    assert split_batch(b"[]", 9) == []
    with pytest.raises(Refused) as caught:
        split_batch(b"{}", 9)
    assert caught.value.code == "E_CLOUDEVENT_INVALID"


def test_binary_data_that_is_no_json_is_refused_and_none_is_null() -> None:
    with pytest.raises(Refused) as caught:
        from_binary({**SPOKEN, "datacontenttype": "text/plain"}, b"hello")
    assert caught.value.details["field"] == "datacontenttype"
    assert from_binary({**SPOKEN, "datacontenttype": "text/plain"}, b"").data == "null"
    with pytest.raises(Refused) as caught:
        from_binary(SPOKEN, b"hello")
    assert caught.value.code == "E_JSON_INVALID"


@pytest.mark.parametrize(
    ("content_type", "is_it"),
    [
        (None, True),
        ("", True),
        ("application/json", True),
        ("Text/JSON; a=b", True),
        ("application/x+json", True),
        ("text/plain", False),
        ("application/jsonp", False),
    ],
)
def test_which_content_types_are_json(content_type: str | None, *, is_it: bool) -> None:
    assert is_json(content_type) is is_it


def test_the_names_of_the_formats() -> None:
    assert (cloudevents.STRUCTURED, cloudevents.BATCH) == (
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
    )
