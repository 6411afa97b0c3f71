"""Event types declared in Avro: what JSON has to be is told by the schema alone, and nothing is guessed or rounded."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.event_schemas.avro_types import words_of
from schemas.event_schemas.checking import EventSchema
from schemas.event_schemas.dialect import SchemaFault, pointer

Schema = dict[str, Any]


def record(*fields: Any, name: str = "Order", **more: Any) -> Schema:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type"), one, strict=True)) for one in fields],
        **more,
    }


def optional(name: str, kind: Any, default: Any) -> Schema:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind, "default": default}]}


def fits(schema: Any, data: Any) -> bool:
    return EventSchema(words_of(schema)).mismatch(data, 100) is None


def fault(schema: Any) -> SchemaFault:
    with pytest.raises(SchemaFault) as raised:
        words_of(schema)
    return raised.value


CARD, IBAN = record(("id", "string"), name="Card"), record(("id", "string"), name="Iban")
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ("null", [None], [0, "", {}]),
    ("boolean", [True], [1, "true"]),
    ("int", [0, 2**31 - 1, -(2**31)], [2**31, -(2**31) - 1, 1.5, "1", True]),
    ("double", [1, 1.5, -0.0, 2**70], ["1", None]),
    ("string", ["", "é"], [1, None]),
    ("bytes", ["", "\u00ff\n"], ["\u0100", 1]),
    (["null", "string"], [None, "x"], [1, {"string": "x"}]),
    (["null", "long", "string"], [None, 1, "x"], [1.5, []]),
    ({"type": "array", "items": "int"}, [[], [1]], [["1"], {}, None]),
    ({"type": "map", "values": "int"}, [{}, {"a": 1}], [{"a": "1"}, []]),
    ({"type": "enum", "name": "Size", "symbols": ["S", "L"]}, ["S"], ["M", 0]),
    ({"type": "fixed", "name": "Two", "size": 2}, ["ab"], ["a", "abc", "a\u0100"]),
    ({"type": "string", "logicalType": "uuid"}, ["6b2f0b1e-1f5a-4a70-9d53-1a7c0f5b2a11"], ["x"]),
    (record(("id", "string"), ("n", "int")), [{"id": "", "n": 1}, {"id": "", "n": 1, "b": 1}], [{"id": ""}, []]),
    (optional("n", "int", 3), [{}, {"n": 1}], [{"n": None}]),
    (record(("next", ["null", "Order"])), [{"next": None}, {"next": {"next": None}}], [{"next": {"next": 1}}]),
    (record(("a", CARD), ("b", "Card")), [{"a": {"id": ""}, "b": {"id": ""}}], [{"a": {"id": ""}, "b": {"id": 1}}]),
    (record(("a", "shop.Card"), name="Order", namespace="shop") | {"fields": [
        {"name": "a", "type": CARD}, {"name": "b", "type": "shop.Card"}]},
     [{"a": {"id": ""}, "b": {"id": ""}}], [{"a": {"id": ""}}]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), CASES, ids=lambda told: str(told)[:40])
def test_json_is_what_the_avro_type_means(schema: Any, good: list[Any], bad: list[Any]):
    assert [value for value in good if not fits(schema, value)] == []
    assert [value for value in bad if fits(schema, value)] == []


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (optional("a", ["float", "null"], None), "/fields/0/default"),
        (optional("a", ["string", "null"], None), "/fields/0/default"),
        (optional("a", ["null", "string"], "x"), "/fields/0/default"),
        (optional("a", "int", "x"), "/fields/0/default"),
        (optional("a", "long", 2**63), "/fields/0/default"),
    ],
)
def test_i06_a_default_that_does_not_fit_the_first_branch_is_refused(schema: Any, path: str):
    found = fault(schema)
    assert (pointer(found.path), "first branch" in str(found)) == (path, True)


def test_i06_a_default_that_fits_the_first_branch_is_taken_and_older_data_with_it():
    assert fits(optional("a", ["null", "float"], None), {})
    assert fits(optional("day", {"type": "int", "logicalType": "date"}, 0), {})


@pytest.mark.parametrize(
    "branches",
    [["int", "long"], ["string", "bytes"], ["float", "long"],
     ["string", {"type": "enum", "name": "E", "symbols": ["A"]}],
     [CARD, {"type": "map", "values": "string"}], ["string", {"type": "int", "logicalType": "date"}]],
    ids=str,
)  # fmt: skip
def test_i08_branches_that_json_cannot_tell_apart_are_refused(branches: list[Any]):
    found = fault(record(("a", branches)))
    assert "nothing is guessed" in str(found)
    assert found.path[:3] == ("fields", 0, "type")


def test_i08_of_several_records_the_data_names_the_branch():
    either = record(("how", ["null", CARD, IBAN]))
    assert fits(either, {"how": None})
    assert fits(either, {"how": {"Card": {"id": "1"}}})
    assert fits(either, {"how": {"Iban": {"id": "1"}}})
    for guessed in (
        {"id": "1"},
        {"Card": {"id": 1}},
        {"Card": {"id": "1"}, "Iban": {"id": "1"}},
        {"Other": {"id": "1"}},
    ):
        assert not fits(either, {"how": guessed})
    found = EventSchema(words_of(either)).mismatch({"how": {"Card": {"id": 1}}}, 10)
    assert found is not None
    assert pointer(found.path) == "/how/Card/id"


@pytest.mark.parametrize("value", [2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_i09_a_long_keeps_all_its_digits(value: int):
    assert fits("long", value)
    assert fits(optional("n", "long", value), {"n": value})
    assert fits({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long", "default": value}]}, {})
    assert not fits("long", 2**63)
    assert not fits("long", -(2**63) - 1)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}


@pytest.mark.parametrize("value", ["12345678901234567890.123456789012345678", "0", "-1.5", "16777217"])
def test_i09_a_decimal_is_text_with_all_its_digits(value: str):
    assert fits(DECIMAL, value)


@pytest.mark.parametrize(
    "value", [1.5, 9007199254740993, "1e3", "1.", ".5", "123456789012345678901", "0." + "1" * 19, " 1"]
)
def test_i09_a_decimal_is_never_a_number_and_never_rounded(value: Any):
    assert not fits(DECIMAL, value)


GOLDEN = json.loads(Path(__file__).with_name("event_schemas_golden.json").read_text("utf-8"))


@pytest.mark.parametrize("name", GOLDEN)
def test_i10_what_an_avro_type_means_in_json_never_changes(name: str):
    told = GOLDEN[name]
    assert words_of(told["avro"]) == told["words"]
    assert [value for value in told["fits"] if not fits(told["avro"], value)] == []
    assert [value for value in told["does not"] if fits(told["avro"], value)] == []


def nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("Order", "no type that is known"),
        (3, "an Avro type is"),
        ({}, "an Avro type is"),
        ([], "not empty"),
        ([["null"]], "without a union in it"),
        ({"type": "record", "name": "R"}, "list of `fields`"),
        ({"type": "record", "fields": []}, "have a `name`"),
        ({"type": "record", "name": "R", "fields": [1]}, "a field is"),
        ({"type": "record", "name": "R", "fields": [], "aliases": ["Q"]}, "aliases"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "order": "ignore"}]}, "order"),
        (record(("a", CARD), ("b", CARD)), "declared already"),
        ({"type": "enum", "name": "E", "symbols": []}, "symbols"),
        ({"type": "fixed", "name": "F", "size": 0}, "size"),
        ({"type": "fixed", "name": "F", "size": 10**9}, "size"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "not known"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, "precision"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, "scale"),
        ({"type": "array"}, "an Avro type is"),
        ({"type": {"type": "string"}}, "an Avro type is"),
        ({"type": "record", "name": "R R", "fields": []}, "is no name"),
        (record(("a", "int"), ("a", "int")), "a second time"),
        (nested(300), "nested"),
    ],
    ids=lambda told: str(told)[:40],
)
def test_what_is_no_avro_schema_or_has_no_bound_is_refused(schema: Any, word: str):
    assert word in str(fault(schema))


COMPILED = [EventSchema(words_of(schema)) for schema, _, _ in CASES]
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    lambda inside: st.lists(inside, max_size=3)
    | st.dictionaries(st.sampled_from(["id", "n", "next", "a"]), inside, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(data=DATA)
def test_any_json_value_fits_or_is_told_where_it_does_not(data: Any):
    for schema in COMPILED:
        found = schema.mismatch(data, 100)
        if found is not None:
            assert found.seen
            assert found.expected


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["null", "record", "array", "x", "bytes", "decimal", "a b"]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "default", "symbols", "size", "logicalType"]),
            inside,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(schema=JUNK)
def test_whatever_is_declared_is_a_schema_or_refused(schema: Any):
    for read in (lambda: words_of(schema), lambda: schema):
        with suppress(SchemaFault):
            EventSchema(read())
