"""Avro keeps every value as it was: unions, whole numbers, decimals and dates, whichever version of a library reads.

Records of ours are text and whole numbers; what producers may write as events of their own is read by the same codec.
"""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from schemas.avro import MAGIC, RecordCodec, _fingerprint, codec
from schemas.envelope import decode_envelope, encode_envelope

Schema = dict[str, Any]
EXACT = (2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1)


def schema(*fields: Schema, name: str = "Thing") -> Schema:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> Schema:
    return {"name": name, "type": kind, **more}


def written(with_schema: Schema, value: dict[str, Any]) -> bytes:
    """As any producer's library writes it."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(json.loads(json.dumps(with_schema))), value)
    return MAGIC + _fingerprint(with_schema) + out.getvalue()


SHIPPED = sorted(files("schemas").joinpath("avro").iterdir(), key=lambda one: one.name)
NEWEST = schema(field("a", ["null", "string"], default=None), field("n", "long", default=0))


def shipped_types() -> list[tuple[str, Any, Any]]:
    """Every field of every schema that shipped: where it is, its type, its default."""
    return [
        (f"{one.name}: {told['name']}", told["type"], told.get("default", ...))
        for one in SHIPPED
        for told in json.loads(one.read_text("utf-8"))["fields"]
    ]


@pytest.mark.parametrize("value", ["x", None])
def test_i06_data_of_a_union_whose_default_fits_another_branch_is_read(value: str | None):
    odd = schema(field("a", ["string", "null"], default=None))
    assert RecordCodec([odd, NEWEST]).decode(written(odd, {"a": value})) == {"a": value, "n": 0}


def test_i06_no_schema_of_ours_may_have_such_a_union():
    with pytest.raises(KeyError):
        RecordCodec([schema(field("a", ["float", "null"], default=None))])
    unions = [(where, kind, default) for where, kind, default in shipped_types() if isinstance(kind, list)]
    assert unions
    assert [where for where, kind, default in unions if (kind[0], default) != ("null", None)] == []


CARD = schema(field("id", "string"), field("last4", "string", default=""), name="Card")
IBAN = schema(field("id", "string"), field("bank", "string", default=""), name="Iban")


@pytest.mark.parametrize(("branch", "number"), [("Card", 0), ("Iban", 1)])
def test_i08_of_two_records_that_share_fields_the_branch_is_the_one_that_was_written(branch: str, number: int):
    either = schema(field("a", "string"), field("how", [CARD, IBAN]))
    data = written(either, {"a": "x", "how": (branch, {"id": "1"})})
    assert data[10 + 2] == 2 * number, "the branch stands in the data by its number, behind the text"
    reading = RecordCodec([either, schema(field("a", "string"))])
    assert reading.decode(data) == {"a": "x"}


def test_i08_no_schema_of_ours_may_leave_the_branch_to_a_guess():
    with pytest.raises(KeyError):
        RecordCodec([schema(field("how", [CARD, IBAN]))])
    assert [where for where, kind, _ in shipped_types() if isinstance(kind, list) and len(kind) > 2] == []


@pytest.mark.parametrize("value", EXACT)
def test_i09_whole_numbers_keep_all_their_digits_written_read_and_as_defaults(value: int):
    old, new = schema(field("b", "string")), schema(field("b", "string"), field("n", "long", default=value))
    both = RecordCodec([old, new])
    assert both.decode(both.encode({"b": "", "n": value}))["n"] == value
    assert both.decode(RecordCodec([old]).encode({"b": ""}))["n"] == value
    assert both.decode(both.encode({"b": ""}))["n"] == value


@pytest.mark.parametrize(
    "number", ["16777217", "9007199254740993", "0.1000000000000000055511151231257827", "1.0", "-0.0"]
)
def test_i09_numbers_in_data_are_text_and_keep_all_their_digits(number: str):
    sent = (
        '{"id":"1","type":"t","idempotency_key":"k","partition_key":"p","occurred_at":"2026-07-19T14:02:11Z",'
        f'"project_id":"acme","data":{{"n":{number}}}}}'
    )
    told = decode_envelope(sent.encode())
    assert decode_envelope(encode_envelope(told)).data == f'{{"n":{number}}}'


def test_i09_a_decimal_is_read_exactly():
    money = field("m", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18})
    exact = Decimal("12345678901234567890.123456789012345678")
    out = io.BytesIO(written(schema(money), {"m": exact})[10:])
    assert schemaless_reader(out, parse_schema(schema(money)), None) == {"m": exact}


DATES = "dac202c0efd9c7e7bdab060603d02c"  # by the specification: days, microseconds, the unscaled number
GOLDEN = json.loads(Path(__file__).with_name("avro_golden.json").read_text("utf-8"))


@pytest.mark.parametrize("name", GOLDEN)
def test_i10_the_bytes_of_every_version_that_shipped_are_read_as_ever(name: str):
    record, _, version = name.partition(".v")
    told = GOLDEN[name]
    assert codec(record).decode(bytes.fromhex(told["bytes"])) == told["read"]
    if version == max(other.partition(".v")[2] for other in GOLDEN if other.partition(".v")[0] == record):
        assert codec(record).encode(told["read"]).hex() == told["bytes"]


def test_i10_every_version_that_shipped_has_its_bytes():
    assert sorted(GOLDEN) == sorted(one.name.removesuffix(".avsc") for one in SHIPPED)


def test_i10_dates_decimals_and_moments_of_producers_are_never_raw_numbers():
    kinds = [
        field("day", {"type": "int", "logicalType": "date"}),
        field("at", {"type": "long", "logicalType": "timestamp-micros"}),
        field("sum", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ]
    told = {"day": date(2026, 7, 19), "at": datetime(2026, 7, 19, 14, 2, 11, 884_000, UTC), "sum": Decimal("2499.00")}
    data = written(schema(*kinds), told)[10:]
    assert data.hex() == DATES
    assert schemaless_reader(io.BytesIO(data), parse_schema(schema(*kinds)), None) == told
