"""Records framed for a schema registry: read by their writer's schema into envelopes, or refused with what is wrong."""

import io
import json
from datetime import date
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from processors.ports.streams import Record
from schemas.confluent import WriterSchema, schema_number
from schemas.envelope import Envelope, decode_envelope
from schemas.errors import Refused
from schemas.framing import Writers, decode_record

NUMBER = 7
FIELDS = ("id", "type", "idempotency_key", "partition_key", "occurred_at", "project_id")
EVENT = {
    "id": "1",
    "type": "order.paid",
    "idempotency_key": "k",
    "partition_key": "p",
    "occurred_at": "2026-07-19T14:02:11Z",
    "project_id": "acme",
}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}, {"name": "to", "type": "string"}]}
NULL = {"name": "a", "type": {"type": "null"}}
EMPTY = {"type": "record", "name": "E", "fields": [NULL]}


def schema(data: Any = "string", *more: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": name, "type": "string"} for name in FIELDS]
    return {"type": "record", "name": "Paid", "fields": [*fields, {"name": "data", "type": data}, *more]}


def writer(told: dict[str, Any]) -> WriterSchema:
    return WriterSchema(NUMBER, "AVRO", json.dumps(told))


def framed(told: dict[str, Any], **values: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(json.loads(json.dumps(told))), {**EVENT, **values})
    return b"\0" + NUMBER.to_bytes(4, "big") + out.getvalue()


def record(value: bytes | None) -> Record:
    return Record("events", 0, 0, b"p", value, (), 0)


def test_data_that_is_json_text_stays_as_it_is():
    told = writer(schema()).decode(framed(schema(), data='{ "n": 1.0 }'))
    assert told == Envelope(**EVENT, data='{ "n": 1.0 }')


def test_data_that_is_a_record_becomes_json_with_all_its_digits():
    told = writer(schema(ORDER)).decode(framed(schema(ORDER), data={"n": 2**53 + 1, "to": "Zoé"}))
    assert told.data == '{"n":9007199254740993,"to":"Zoé"}'


def test_fields_that_an_envelope_has_not_are_passed_over_and_those_it_may_have_are_read():
    wider = schema("string", {"name": "shop", "type": "string"}, {"name": "attempt", "type": "int"})
    told = writer(wider).decode(framed(wider, data="1", shop="x", attempt=3))
    assert (told.data, told.attempt) == ("1", 3)


def test_a_json_schema_frames_a_json_envelope():
    body = json.dumps({**EVENT, "data": {"n": 1}}).encode()
    framed_json = b"\0" + NUMBER.to_bytes(4, "big") + body
    assert WriterSchema(NUMBER, "JSON", "{}").decode(framed_json) == decode_envelope(body)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("bytes", b"x"),
        ({"type": "int", "logicalType": "date"}, date(2026, 7, 19)),
        ("string", "{"),
        ("string", '{"a":1,"a":2}'),
        ("double", float("nan")),
    ],
)
def test_data_that_json_cannot_tell_is_refused(data: Any, value: object):
    with pytest.raises(Refused) as caught:
        writer(schema(data)).decode(framed(schema(data), data=value))
    assert (caught.value.code, caught.value.details["field"]) == ("E_ENVELOPE_INVALID", "data")


def test_a_schema_without_a_field_that_is_needed_makes_no_envelope():
    bare = {"type": "record", "name": "Bare", "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(Refused, match="missing"):
        writer(bare).decode(framed(bare))


@pytest.mark.parametrize("cut", [5, 6, 20])
def test_bytes_that_are_not_of_the_schema_are_refused(cut: int):
    whole = framed(schema(), data="1")
    for value in (whole[:cut], whole + b"x"):
        with pytest.raises(Refused) as caught:
            writer(schema()).decode(value)
        assert caught.value.code == "E_ENVELOPE_INVALID"


@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_be_refused(body: bytes):
    try:
        writer(schema(ORDER)).decode(b"\0\0\0\0\7" + body)
    except Refused as refused:
        assert refused.code == "E_ENVELOPE_INVALID"  # noqa: PT017 - some by chance are fine


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("PROTOBUF", "message A {}"),
        ("AVRO", "{"),
        ("AVRO", '"string"'),
        ("AVRO", '{"type":"record","name":"A","fields":[{"name":"a","type":"nothing"}]}'),
        ("AVRO", "[" * 100_000),
        ("AVRO", json.dumps(schema({"type": "array", "items": "null"}))),
        ("AVRO", json.dumps(schema({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}))),
        ("AVRO", json.dumps(schema({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}))),
        ("AVRO", json.dumps(schema({"type": "array", "items": {"type": "null", "doc": "nothing"}}))),
        ("AVRO", json.dumps(schema({"type": "array", "items": EMPTY}))),
        ("AVRO", json.dumps(schema({"type": "array", "items": "E"}, {"name": "e", "type": EMPTY}))),
        ("AVRO", json.dumps(schema(EMPTY, {"name": "e", "type": {"type": "array", "items": "E"}}))),
        ("AVRO", json.dumps(schema({"type": "map", "values": {**ORDER, "fields": [*ORDER["fields"], NULL]}}))),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(kind: str, text: str):
    with pytest.raises(Refused) as caught:
        WriterSchema(NUMBER, kind, text)
    assert caught.value.code == "E_SCHEMA_UNKNOWN"


def test_a_tree_of_records_and_a_field_that_is_always_null_can_be_used():
    children = {"name": "children", "type": {"type": "array", "items": "Tree"}}
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "n", "type": "long"}, children]}
    told = schema(tree, {"name": "trigger_id", "type": "null"})
    data = {"n": 1, "children": [{"n": 2, "children": []}]}

    read = writer(told).decode(framed(told, data=data, trigger_id=None))

    assert read.data == '{"n":1,"children":[{"n":2,"children":[]}]}'


def test_d14_a_null_and_a_few_bytes_are_no_frame():
    assert [schema_number(value) for value in (None, b"", b"\0", b"\0\0\0\0", b"{")] == [None] * 5
    writers: Writers = {NUMBER: writer(schema())}
    for value, code in ((None, "E_TOMBSTONE"), (b"\0\0\0", "E_ENVELOPE_INVALID")):
        with pytest.raises(Refused) as caught:
            decode_record(record(value), writers)
        assert caught.value.code == code


def test_a_frame_means_something_only_where_there_is_a_registry():
    value = framed(schema(), data="1")
    assert decode_record(record(value), {NUMBER: writer(schema())}).data == "1"
    with pytest.raises(Refused, match="neither Avro nor strict JSON"):
        decode_record(record(value))
    unknown = Refused("E_SCHEMA_UNKNOWN", "the registry has no schema 7")
    with pytest.raises(Refused, match="has no schema 7"):
        decode_record(record(value), {NUMBER: unknown})
