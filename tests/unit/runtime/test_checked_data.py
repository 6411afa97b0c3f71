"""Data as it was sent, against a set of declared schemas: accepted or E_EVENT_SCHEMA, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.runtime.event_schemas import check_data
from schemas import strict_json
from schemas.errors import Refused
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

EVENTS = """
events:
  - type: any
    schema: true
  - type: none
    schema: false
  - type: order
    schema:
      type: object
      required: [id]
      properties:
        id: { type: integer, minimum: 9007199254740993 }
        at: { type: string, format: date-time }
        lines: { type: array, uniqueItems: true, items: { $ref: "#/$defs/line" } }
      additionalProperties: { type: [string, "null"] }
      $defs:
        line:
          oneOf: [{ type: string, pattern: "^[a-z]+$" }, { $ref: "#/$defs/bundle" }]
        bundle: { type: object, properties: { line: { $ref: "#/$defs/line" } } }
  - type: tree
    schema: { anyOf: [{ type: "null" }, { type: array, items: { $ref: "#" }, maxItems: 2 }] }
  - type: avro
    avro:
      type: record
      name: Order
      fields:
        - { name: id, type: long }
        - name: how
          type: ["null", { type: record, name: Card, fields: [] }, { type: record, name: Iban, fields: [] }]
        - { name: next, type: ["null", Order], default: null }
"""
SNAPSHOT = snapshot_of({"events.yaml": EVENTS})
TYPES = ("any", "none", "order", "tree", "avro", "undeclared")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
NAMES = st.sampled_from(["id", "at", "lines", "line", "how", "Card", "next", "0", "00", ""]) | TEXT
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**53, 2**80) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False) | st.just("2026-07-19T14:00:00Z"),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(NAMES, inside, max_size=5),
    max_leaves=15,
)  # fmt: skip


def refusal(event_type: str, text: str, *read: Any) -> Refused | None:
    try:
        check_data(SNAPSHOT, PROJECT, event_type, text, *read)
    except Refused as refused:
        return refused
    return None


@settings(max_examples=300, deadline=None)
@given(data=DATA, is_ascii=st.booleans(), is_read=st.booleans())
def test_any_json_value_is_accepted_or_refused_by_its_code(data: Any, is_ascii: bool, is_read: bool):
    text = json.dumps(data, ensure_ascii=is_ascii)
    read = (strict_json.decode(text.encode()),) if is_read else ()
    found = {event_type: refusal(event_type, text, *read) for event_type in TYPES}
    assert (found["any"], found["undeclared"]) == (None, None)
    assert found["none"] is not None
    for refused in filter(None, found.values()):
        assert (refused.code, refused.details["schema_version"]) == ("E_EVENT_SCHEMA", 1)


BOUNDS = ["[" * 128 + "]" * 128, '{"id":1e308}', '{"id":' + "9" * 1000 + "}", '{"at":"' + "a" * 900_000 + '"}', "-0.0"]


@pytest.mark.parametrize("text", BOUNDS, ids=range(len(BOUNDS)))
def test_data_at_the_bounds_of_json_is_no_trouble(text: str):
    for event_type in TYPES:
        refused = refusal(event_type, text)
        if refused is not None:
            assert refused.code == "E_EVENT_SCHEMA"
            assert len(refused.message) < 1000


def test_another_project_s_schema_is_asked_of_nobody_else():
    check_data(SNAPSHOT, "pj_other", "none", "{}")
