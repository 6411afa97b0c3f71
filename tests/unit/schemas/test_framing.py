"""Records in every form that the topic takes; the form is told by the record, and a bad one costs no neighbour."""

import json
from typing import Any

import pytest

from processors.ports.streams import Record
from schemas.envelope import Envelope, decode_envelope, encode_envelope
from schemas.errors import Refused
from schemas.framing import Headers, decode_record

MILLIS = 1_784_469_731_884  # 2026-07-19T14:02:11.884Z
EVENT = {
    "id": "7",
    "type": "order.paid",
    "idempotency_key": "order:7",
    "partition_key": "p",
    "occurred_at": "2026-07-19T14:02:11Z",
    "project_id": "acme",
    "data": {"n": 1},
}
CE: dict[str, bytes | None] = {
    "ce_specversion": b"1.0",
    "ce_type": b"order.paid",
    "ce_source": b"/orders",
    "ce_id": b"7",
    "a44-project": b"acme",
    "content-type": b"application/json",
}


def record(value: bytes | None, headers: Headers = (), key: bytes | None = b"p", millis: int = MILLIS) -> Record:
    return Record("events", 0, 0, key, value, headers, millis)


def binary(value: bytes | None = b'{"n":1}', key: bytes | None = b"p", **changes: Any) -> Record:
    told = {**CE, **{name.replace("__", "-"): text for name, text in changes.items()}}
    return record(value, tuple((name, text) for name, text in told.items() if text is not ...), key)


def structured(text: bytes, kind: bytes = b"application/cloudevents+json; charset=utf-8") -> Record:
    return record(text, (("content-type", kind), ("a44-project", b"acme")))


def refusal(read: Record) -> Refused:
    with pytest.raises(Refused) as caught:
        decode_record(read)
    return caught.value


def test_a_json_envelope_and_ours_in_avro_are_the_same_event():
    told = decode_record(record(json.dumps(EVENT).encode()))
    assert told == decode_record(record(encode_envelope(told)))
    assert told.data == '{"n": 1}'


def test_a_cloudevent_in_binary_mode_has_its_attributes_in_headers():
    told = decode_record(binary(ce_time=b"2018-04-05T17:31:00Z", ce_partitionkey=b"cust_1"))
    assert told == Envelope(
        id="/orders 7",
        type="order.paid",
        idempotency_key="/orders 7",
        partition_key="cust_1",
        occurred_at="2018-04-05T17:31:00Z",
        data='{"n":1}',
        project_id="acme",
        correlation_id="7",
    )


def test_a_cloudevent_in_structured_mode_is_told_by_its_content_type():
    text = b'{"specversion":"1.0","type":"order.paid","source":"/orders","id":"7","data":{"n":1}}'
    assert decode_record(structured(text)) == decode_record(binary())
    assert refusal(record(text)).code == "E_ENVELOPE_INVALID"


def test_what_a_cloudevent_leaves_out_the_record_says():
    told = decode_record(binary(key=b"k"))
    assert (told.partition_key, told.occurred_at) == ("k", "2026-07-19T14:02:11.884Z")
    assert decode_record(binary(key=None)).partition_key == "/orders 7"


def test_the_project_of_a_cloudevent_is_an_extension_or_a_header():
    assert decode_record(binary(ce_project=b"other")).project_id == "other"
    assert "project is missing" in refusal(binary(a44__project=...)).message
    assert refusal(binary(a44__project=b"Acme")).code == "E_CLOUDEVENT_INVALID"


def test_d14_a_null_is_looked_for_before_anything_else_is_read():
    assert refusal(record(None)).code == "E_TOMBSTONE"
    assert refusal(record(None, (("content-type", b"application/cloudevents+json"),))).code == "E_TOMBSTONE"
    assert decode_record(binary(None)).data == "null"


def test_d14_a_key_that_is_no_text_matters_only_where_it_has_to_keep_the_order():
    assert decode_record(record(json.dumps(EVENT).encode(), key=b"\xff")).partition_key == "p"
    assert refusal(binary(key=b"\xff")).message.startswith("the record's key is not UTF-8: byte 0")
    assert decode_record(binary(key=b"\xff", ce_partitionkey=b"p")).partition_key == "p"


def test_d14_headers_of_a_cloudevent_are_text_and_stand_once():
    assert refusal(binary(ce_type=b"\xff")).message.startswith("the header 'ce_type' is not UTF-8")
    twice = binary()
    twice.headers = (*twice.headers, ("ce_id", b"8"))
    assert refusal(twice).message == "the header 'ce_id' stands twice"
    odd = binary()
    odd.headers = (*odd.headers, ("x", b"\xff"), ("x", b"\xfe"), ("ce_subject", None))
    assert decode_record(odd) == decode_record(binary())


@pytest.mark.parametrize(
    "kind", [b"application/cloudevents", b"application/cloudevents-batch+json", b"application/cloudevents+avro"]
)
def test_other_formats_of_cloudevents_are_refused_by_name(kind: bytes):
    told = refusal(structured(b"[]", kind))
    assert (told.code, kind.decode() in told.message) == ("E_CLOUDEVENT_INVALID", True)


@pytest.mark.parametrize("millis", [-1, 0, 2**53, 2**63 - 1])
def test_any_time_that_a_record_may_have_is_a_moment(millis: int):
    read = binary()
    read.timestamp_ms = millis
    assert decode_envelope(encode_envelope(decode_record(read))).occurred_at.endswith("Z")


@pytest.mark.parametrize("value", [b"{", b"\xff", b'{"secret":1,"secret":2}', b'"\\u0000"', b"[" * 200])
def test_what_is_said_of_data_that_is_not_strict_json_holds_none_of_it(value: bytes):
    for read in (binary(value), structured(b'{"specversion":"1.0","data":' + value + b"}")):
        told = refusal(read)
        assert (told.code, "secret" in told.message) == ("E_CLOUDEVENT_INVALID", False)
