"""A type's next version takes whatever the one before took; what is not seen to is told with its place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.event_schemas.avro_types import words_of
from schemas.event_schemas.checking import EventSchema
from schemas.event_schemas.compatibility import narrowed
from schemas.event_schemas.dialect import pointer

OBJECT: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string", "minLength": 2}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
}
CLOSED = {**OBJECT, "additionalProperties": False}


def changed(schema: dict[str, Any] = OBJECT, **changes: Any) -> dict[str, Any]:
    return {**schema, **changes}


def with_n(**asked: Any) -> dict[str, Any]:
    return changed(properties={**OBJECT["properties"], "n": asked})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OBJECT, OBJECT),
        (OBJECT, True),
        (OBJECT, {}),
        (False, OBJECT),
        (OBJECT, changed(title="Order", description="of a shop")),
        (OBJECT, {key: value for key, value in OBJECT.items() if key != "required"}),
        (OBJECT, with_n(type="number", minimum=0)),
        (OBJECT, with_n(type=["integer", "null"], minimum=1, maximum=10)),
        (OBJECT, changed(properties={**OBJECT["properties"], "note": {"type": "string"}})),
        (CLOSED, OBJECT),
        (CLOSED, changed(CLOSED, properties={**OBJECT["properties"], "note": {"type": "string"}})),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b", "c"]}),
        ({"const": "a"}, {"type": "string"}),
        ({"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
        ({"anyOf": [{"type": "null"}, {"const": 1}]}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ({"items": {"enum": [1]}}, {"items": {"enum": [1, 2]}}),
        ({"allOf": [OBJECT, {"minProperties": 2}]}, OBJECT),
        ({"$ref": "#/$defs/a", "$defs": {"a": OBJECT}}, OBJECT),
        (OBJECT, {"$ref": "#/$defs/a", "$defs": {"a": OBJECT}}),
        ({"pattern": "^a$"}, {"pattern": "^a$"}),
        ({"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}),
        ({"additionalProperties": {"type": "integer"}}, {"additionalProperties": {"type": "number"}}),
    ],
)
def test_a_version_that_takes_as_much_may_follow(old: Any, new: Any):
    assert narrowed(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (True, OBJECT, "/type"),
        ({}, False, ""),
        (OBJECT, changed(required=["id", "n"]), "/required"),
        (OBJECT, with_n(type="string"), "/properties/n/type"),
        (OBJECT, with_n(type="integer", minimum=2, maximum=9), "/properties/n/minimum"),
        (OBJECT, with_n(type="integer", minimum=1, maximum=8), "/properties/n/maximum"),
        (OBJECT, with_n(type="integer", multipleOf=2), "/properties/n/multipleOf"),
        (OBJECT, CLOSED, "/additionalProperties"),
        (CLOSED, changed(CLOSED, properties={"id": OBJECT["properties"]["id"]}), "/additionalProperties"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "/enum"),
        ({"enum": [1]}, {"enum": [True]}, "/enum"),
        ({"type": "number"}, {"type": "integer"}, "/type"),
        ({"type": ["string", "null"]}, {"type": "string"}, "/type"),
        ({"type": "string"}, {"type": "string", "pattern": "^a$"}, "/pattern"),
        ({"pattern": "^a$"}, {"pattern": "^b$"}, "/pattern"),
        ({"items": {"type": "number"}}, {"items": {"type": "integer"}}, "/items"),
        ({}, {"items": {"type": "integer"}}, "/items"),
        ({"prefixItems": [{}]}, {"prefixItems": [{}, {}], "items": True}, "/prefixItems"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]},
         {"anyOf": [{"type": "string"}, {"type": "array"}]}, "/anyOf"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}},
         {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "/$defs/a/type"),
        ({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": False}},
         {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}}, "/not"),
        ({}, {"uniqueItems": True}, "/uniqueItems"),
        ({}, {"dependentRequired": {"a": ["b"]}}, "/dependentRequired"),
        ({"if": {"type": "null"}, "then": {}}, {"if": {"type": "null"}, "then": False}, "/if"),
        ({"properties": {"a": {"type": "null"}, "k": {"$ref": "#"}}},
         {"properties": {"a": {"const": None}, "k": {"$ref": "#"}}}, "/properties/a/const"),
    ],
)  # fmt: skip
def test_a_version_that_takes_less_is_told_with_its_place(old: Any, new: Any, place: str):
    found = narrowed(old, new)
    assert found is not None
    assert pointer(found) == place


def chain(long: int, last: Any) -> dict[str, Any]:
    """Each part leads one level further into the data."""
    links = {f"d{at}": {"properties": {"a": {"$ref": f"#/$defs/d{at + 1}"}}} for at in range(long)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{long}": last}}


def test_what_is_too_deep_to_be_compared_is_not_taken_for_fine():
    assert narrowed(chain(20, {}), chain(20, {"title": "x"})) is None
    assert narrowed(chain(20, {}), chain(20, {"type": "null"})) == ("$defs", "d20", "type")
    assert narrowed(chain(400, {}), chain(400, {"type": "null"})) == ()
    assert EventSchema(chain(400, {"type": "null"})).mismatch({"a": {}}, 10) is None


WORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "integer", "string", ["null", "integer"]]),
        "enum": st.lists(st.sampled_from([1, 2, "a", None, {}, [1]]), min_size=1, max_size=3, unique_by=str),
        "minimum": st.integers(0, 2),
        "maximum": st.integers(0, 2),
        "minLength": st.integers(0, 2),
        "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
        "uniqueItems": st.booleans(),
    },
)


def schemas(*, with_properties: bool) -> st.SearchStrategy[Any]:
    def around(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(inside, min_size=1, max_size=2)
        words = {"additionalProperties": inside, "items": inside, "not": inside}
        words |= dict.fromkeys(["prefixItems", "anyOf", "oneOf", "allOf"], some)
        if with_properties:
            words["properties"] = st.dictionaries(st.sampled_from(["a", "b"]), inside, max_size=2)
        more = st.fixed_dictionaries({}, optional=words)
        return st.builds(lambda one, other: {**one, **other}, WORDS, more)

    return st.recursive(WORDS | st.booleans(), around, max_leaves=6)


DATA = st.recursive(
    st.sampled_from([None, 0, 1, 2, 3, 1.5, "", "a", "ab", True]),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inside, max_size=2),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(
    old=schemas(with_properties=True),
    new=schemas(with_properties=False),
    values=st.lists(DATA, min_size=1, max_size=8),
)
def test_what_the_version_before_took_is_taken_by_one_that_may_follow(old: Any, new: Any, values: list[Any]):
    for follower in (new, old, {"anyOf": [new, old]}, {"allOf": [old]}):
        if narrowed(old, follower) is not None:
            continue
        before, after = EventSchema(old), EventSchema(follower)
        for value in values:
            if before.mismatch(value, 1) is None:
                assert after.mismatch(value, 1) is None


UNION = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"], "default": None}]}


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("int", "long", True),
        ("long", "int", False),
        ("long", "double", True),
        ("string", ["null", "string"], True),
        (["null", "string"], "string", False),
        (UNION, {**UNION, "fields": []}, True),
        ({**UNION, "fields": []}, UNION, True),
        (UNION, {**UNION, "fields": [*UNION["fields"], {"name": "b", "type": "int"}]}, False),
        (UNION, {**UNION, "fields": [*UNION["fields"], {"name": "b", "type": "int", "default": 0}]}, True),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}, True),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, False),
    ],
)
def test_avro_changes_as_its_readers_resolve_them(old: Any, new: Any, may: bool):
    assert (narrowed(words_of(old), words_of(new)) is None) is may
