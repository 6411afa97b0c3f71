"""Declared schemas: what may be declared is bounded, and any JSON value fits or is told where it does not."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.event_schemas.checking import MOST_WORK, EventSchema
from schemas.event_schemas.dialect import FORMATS, MAX_BYTES, SchemaFault, pointer
from schemas.event_schemas.locating import Mismatch

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["order_id", "lines"],
    "properties": {
        "order_id": {"type": "string", "minLength": 1},
        "note": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/note"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "$defs": {
        "note": {"type": "object", "properties": {"kind": {"enum": ["gift", "return"]}}},
        "line": {
            "type": "object",
            "required": ["sku"],
            "additionalProperties": False,
            "properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}, "qty": {"type": "integer", "minimum": 1}},
        },
    },
}
LOOP = {
    "oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}
SCHEMAS: list[Any] = [
    True,
    False,
    ORDER,
    LOOP,
    {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["left"]},
    {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {"type": "null"}}}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}, {"required": ["a"]}], "not": {"const": 7}},
    {"if": {"type": "object"}, "then": {"propertyNames": {"pattern": "^[a-z]$"}}, "else": {"uniqueItems": True}},
    {"prefixItems": [{"type": "string"}, {"format": "date-time"}], "items": False, "contains": {"type": "null"}},
    {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"minProperties": 3}}, "maxProperties": 2},
    {"patternProperties": {"^x": {"multipleOf": 0.5}}, "additionalProperties": {"enum": [1, [1], {"a": 1}, None]}},
    *({"format": name} for name in FORMATS),
]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
NAMES = st.sampled_from(["order_id", "lines", "a", "b", "left", "right", "x", "note", "sku", "0", "00", ""]) | TEXT
HUGE = st.just(10**900)
NUMBERS = st.integers() | st.integers(2**53, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | HUGE
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.just("2026-07-19T14:00:00Z"),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(NAMES, inside, max_size=4),
    max_leaves=12,
)


def told(schema: Any, data: Any) -> Mismatch:
    found = EventSchema(schema).mismatch(data, 100)
    assert found is not None
    return found


def fault(schema: Any) -> SchemaFault:
    with pytest.raises(SchemaFault) as raised:
        EventSchema(schema)
    return raised.value


COMPILED = [EventSchema(schema) for schema in SCHEMAS]


@settings(max_examples=150, deadline=None)
@given(data=ANY)
def test_any_json_value_fits_or_is_told_where_it_does_not(data: Any):
    for schema in COMPILED:
        found = schema.mismatch(data, 100)
        if found is None:
            continue
        at = data
        for word in found.path:
            at = at[word]
        assert found.seen
        assert found.expected
        assert len(found.shown) == len(found.path)


@pytest.mark.parametrize(
    ("data", "where", "shown", "seen", "expected"),
    [
        ([], "", "", "a list of 0 items", "object"),
        ({"lines": []}, "", "", "an object without 'order_id'", "the field 'order_id'"),
        ({"order_id": "", "lines": []}, "/order_id", "/order_id", "a text of 0 characters", "minLength 1"),
        ({"order_id": "x", "lines": [{"sku": "a"}]}, "/lines/0/sku", "/lines/0/sku", "a text of 1 characters",
         'text that matches "^[A-Z]+$"'),
        ({"order_id": "x", "lines": [{"sku": "A", "qty": 0}]}, "/lines/0/qty", "/lines/0/qty", "a whole number",
         "minimum 1"),
        ({"order_id": "x", "lines": [{"sku": "A", "pin": "1"}]}, "/lines/0/pin", "/lines/0/*",
         "a text of 1 characters", "nothing: the schema has no such place"),
        ({"order_id": "x", "lines": [], "note": {"kind": "x"}}, "/note/kind", "/note/kind", "a text of 1 characters",
         'one of ["gift", "return"]'),
        ({"order_id": "x", "lines": [], "note": 1}, "/note", "/note", "a whole number",
         "one of the alternatives of `anyOf`"),
        ({"order_id": "x", "lines": [], "tags": {"ann/~": None}}, "/tags/ann~1~0", "/tags/*", "null", "integer"),
    ],
)  # fmt: skip
def test_a_mismatch_has_its_place_what_was_seen_and_what_was_expected(
    data: Any, where: str, shown: str, seen: str, expected: str
):
    found = told(ORDER, data)
    assert (pointer(found.path), pointer(found.shown), found.seen, found.expected) == (where, shown, seen, expected)


@pytest.mark.parametrize("name", ["0", "00", "+1", "-1", "18446744073709551615", "1" * 30, "", " ", "a/b~c", "\uff14"])
def test_a_place_is_found_whatever_its_names_look_like(name: str):
    schema = {"additionalProperties": {"additionalProperties": {"items": {"type": "null"}}}}
    data = {"a": {}, name: {"b": [], name: [None, 7]}, "b": {"b": [None, None]}}
    assert told(schema, data).path == (name, name, 1)


def test_of_two_names_that_look_like_one_number_the_place_leads_to_the_value():
    assert told({"additionalProperties": {"type": "null"}}, {"0": None, "00": 7}).path == ("00",)


def test_nothing_of_the_data_is_told():
    found = told({"additionalProperties": {"type": "integer"}}, {"4111-1111": "hunter2"})
    assert "hunter2" not in str(found[1:])
    assert "4111" not in str(found[1:])


@pytest.mark.parametrize("value", [2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_whole_numbers_are_compared_with_all_their_digits(value: int):
    assert EventSchema({"const": value}).mismatch(value, 1) is None
    assert EventSchema({"maximum": value}).mismatch(value, 1) is None
    assert EventSchema({"maximum": value}).mismatch(value + 1, 1) is not None
    assert EventSchema({"enum": [value]}).mismatch(value + 1, 1) is not None


@pytest.mark.parametrize("reference", ["http://127.0.0.1:1/x", "file:///etc/passwd", "other.json", "#a", "urn:x", 3])
def test_no_reference_leaves_the_schema(reference: Any):
    found = fault({"properties": {"a": {"$ref": reference}}})
    assert found.path == ("properties", "a", "$ref")
    assert "nothing is fetched" in str(found)


@pytest.mark.parametrize(
    ("schema", "path", "word"),
    [
        ({"$ref": "#/$defs/gone"}, ("$ref",), "leads to no schema"),
        ({"type": "strin"}, ("type",), "known are string"),
        ({"properties": {"a": {"minimum": "x"}}}, ("properties", "a", "minimum"), "number"),
        ({"properties": {"a": 3}}, ("properties", "a"), "mapping"),
        ({"properties": []}, ("properties",), "mapping"),
        ({"allOf": []}, ("allOf",), "not empty"),
        ({"nullable": True}, ("nullable",), "null"),
        ({"definitions": {}}, ("definitions",), "$defs"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, ("$schema",), "2020-12"),
        ({"format": "phone"}, ("format",), "known are"),
        ({"pattern": "(a"}, ("pattern",), "regular expression"),
        ({"pattern": "(?=a)b"}, ("pattern",), "look-around"),
        ({"pattern": "(a{1000}){1000}"}, ("pattern",), "KiB"),
        ({"pattern": "a" * 501}, ("pattern",), "at most 500"),
        ({"patternProperties": {"(a": {}}}, ("patternProperties", "(a"), "regular expression"),
        ({"const": "x" * MAX_BYTES}, (), "bytes"),
        ({"enum": [{"a": number} for number in range(400)]}, (), "too much"),
        ({"$ref": "#"}, (), "never end"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, ("$defs",), "never end"),
    ],
)
def test_a_schema_that_cannot_be_taken_is_refused_at_its_place(schema: Any, path: tuple[Any, ...], word: str):
    found = fault(schema)
    assert word in str(found)
    assert found.path[: len(path)] == path


LAUGHS = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)} | {"d40": {}}
TWICE = {"allOf": [{"items": {"$ref": "#/$defs/n"}}, {"items": {"$ref": "#/$defs/n"}}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/d0", "$defs": LAUGHS},
        {"$ref": "#/$defs/n", "$defs": {"n": TWICE}},
        {"prefixItems": [{"$ref": "#"}], "contains": {"$ref": "#"}},
        {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}},
        {"$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(900)} | {"d900": {}}, "$ref": "#/$defs/d0"},
    ],
)
def test_a_schema_that_would_look_again_and_again_is_refused_before_any_data_comes(schema: Any):
    fault(schema)


def test_a_schema_nested_deep_is_refused():
    schema: Any = {}
    for _ in range(200):
        schema = {"items": schema}
    assert "nested" in str(fault(schema))


def test_data_that_is_too_large_for_what_is_asked_of_it_is_told():
    asks_much = EventSchema({"properties": {"a": {"allOf": [{"pattern": "^(a|b)*$"} for _ in range(8)]}}})
    assert asks_much.largest < 1_000_000 < EventSchema(ORDER).largest
    found = asks_much.mismatch({}, asks_much.largest + 1)
    assert found is not None
    assert found.path == ()
    assert str(asks_much.largest) in found.expected
    assert asks_much.mismatch({}, asks_much.largest) is None


@pytest.mark.parametrize(
    ("schema", "weight"),
    [
        ({}, 1),
        ({"properties": {"a": {}, "b": {"pattern": "a", "format": "date"}}}, 106),
        ({"enum": ["a", "b", "c"]}, 1),
        ({"enum": ["a", "b", None]}, 4),
        ({"enum": [{}, {"a": 1}]}, 9),
        ({"dependentRequired": {"a": ["b"], "c": []}}, 7),
        ({"items": {"patternProperties": {"a": {}, "b": {}}}}, 201),
        ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}]}, 3),
    ],
)
def test_what_a_schema_asks_of_one_value_is_known_beforehand(schema: Any, weight: int):
    assert EventSchema(schema).largest == MOST_WORK // weight


def test_a_fault_in_large_data_under_alternatives_takes_no_memory_for_all_others():
    began = time.perf_counter()
    schema = EventSchema({"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]})
    found = schema.mismatch(list(range(300_000)), 1)
    assert found is not None
    assert found.path == (0,)
    assert time.perf_counter() - began < 30, "the library's own list of faults takes minutes here"
