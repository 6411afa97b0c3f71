"""Avro single-object encoding: the right fingerprint, old versions readable, broken bytes named."""

import io
import json
from importlib.resources import files

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro import RecordCodec, UndecodableError, codec

V1 = {"type": "record", "name": "Thing", "fields": [{"name": "a", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "Thing",
    "fields": [{"name": "b", "type": "int", "default": 7}, {"name": "a", "type": "string"}],
}


def rabin(text: bytes) -> bytes:
    """CRC-64-AVRO as the Avro specification defines it, bit by bit, written little endian."""
    empty = 0xC15D213AA4D7A795
    value = empty
    for byte in text:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1))
    return value.to_bytes(8, "little")


def test_the_header_is_the_marker_and_the_fingerprint_of_the_canonical_schema():
    canonical = b'{"name":"Thing","type":"record","fields":[{"name":"a","type":"string"}]}'
    assert rabin(b'"null"') == bytes.fromhex("8a8f25cce724dd63")  # the specification's own example
    assert RecordCodec([V1]).encode({"a": "x"}) == b"\xc3\x01" + rabin(canonical) + b"\x02x"


ALL_TYPES = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "small", "type": "int", "default": 7},
        {"name": "large", "type": "long"},
    ],
}


@given(
    st.fixed_dictionaries(
        {"text": st.text(), "large": st.integers(-(2**63), 2**63 - 1)},
        optional={"maybe": st.none() | st.text(min_size=1000), "small": st.integers(-(2**31), 2**31 - 1)},
    )
)
def test_records_are_written_as_the_reference_implementation_writes_them(record: dict[str, object]):
    expected = io.BytesIO()
    schemaless_writer(expected, parse_schema(ALL_TYPES), record)
    assert RecordCodec([ALL_TYPES]).encode(record)[10:] == expected.getvalue()


@pytest.mark.parametrize(
    "harm",
    [
        {"text": 1},
        {"text": None},
        {"text": "\ud800"},
        {"maybe": b"x"},
        {"small": 2**31},
        {"large": 2**63},
        {"large": "1"},
    ],
)
def test_a_value_that_does_not_fit_is_not_written(harm: dict[str, object]):
    with pytest.raises((TypeError, ValueError)):
        RecordCodec([ALL_TYPES]).encode({"text": "", "large": 0, **harm})


def test_records_of_an_older_version_are_read_with_the_newer_defaults():
    old = RecordCodec([V1]).encode({"a": "x"})
    both = RecordCodec([V1, V2])
    assert both.decode(old) == {"a": "x", "b": 7}
    assert both.decode(both.encode({"a": "y", "b": 1})) == {"a": "y", "b": 1}


def test_a_newer_version_than_ours_is_named_by_its_fingerprint():
    new = RecordCodec([V2]).encode({"a": "x", "b": 1})
    with pytest.raises(UndecodableError, match=new[2:10].hex()):
        RecordCodec([V1]).decode(new)


@pytest.mark.parametrize("cut", range(13))
def test_a_record_cut_short_is_undecodable(cut: int):
    whole = RecordCodec([V1]).encode({"a": "xyz"})
    with pytest.raises(UndecodableError):
        RecordCodec([V1]).decode(whole[:cut])


def test_bytes_behind_the_record_are_refused():
    with pytest.raises(UndecodableError, match="2 bytes"):
        RecordCodec([V1]).decode(RecordCodec([V1]).encode({"a": "x"}) + b"zz")


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_undecodable(body: bytes):
    header = codec("envelope").encode(
        {"id": "", "type": "", "idempotency_key": "", "partition_key": "", "occurred_at": "", "data": ""}
    )[:10]
    try:
        codec("envelope").decode(header + body)
    except UndecodableError as exc:
        assert "Avro record" in str(exc)  # noqa: PT017 - most bytes are broken, some by chance are not


@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [
        ("envelope.v1", "1fa3c167192604de"),
        ("envelope.v2", "fcda6a5dbcf6b4ea"),
        ("run_event.v1", "4d8201801046bac4"),
        ("step_command.v1", "1a7b7590e34230ff"),
        ("step_command.v2", "13de12bdc9fcb8e4"),
    ],
)
def test_a_schema_that_shipped_is_never_edited(name: str, fingerprint: str):
    schema = json.loads(files("schemas").joinpath("avro", f"{name}.avsc").read_text("utf-8"))
    assert RecordCodec([schema])._header[2:].hex() == fingerprint


def test_an_unknown_record_has_no_codec():
    with pytest.raises(KeyError, match="nothing"):
        codec("nothing")
