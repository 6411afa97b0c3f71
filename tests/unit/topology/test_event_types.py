"""`events:` of a topology file: a schema that is wrong is refused at its line and column."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.errors import Refused
from tests.support.documents import page
from topology.event_types import EventTypeSpec
from topology.publication import Publication, collect, read_files

ORDER = """
events:
  - type: order.paid
    schema:
      type: object
      required: [order_id]
      properties:
        order_id: {type: string}
        amount: {type: integer, minimum: 1}
"""


def published(text: str) -> Publication:
    return read_files({"topology.yaml": text})


def refused(text: str) -> tuple[str, int, int, str]:
    with pytest.raises(Refused) as raised:
        published(text)
    place = raised.value.place
    assert place is not None
    return raised.value.code, place.line, place.column, raised.value.message


def test_event_types_stand_beside_triggers_connectors_and_queues():
    made = published(ORDER + "queues:\n  - id: q_slow\n")
    assert [one.type for one in made.event_types] == ["order.paid"]
    assert [one.id for one in made.queues] == ["q_slow"]
    again = type(made.event_types[0]).from_json(made.event_types[0].to_json())
    assert again == made.event_types[0]
    assert again.compiled.mismatch({"order_id": "x"}, 1) is None
    assert again.compiled.mismatch({"order_id": 1}, 1) is not None


def test_json_is_taken_as_it_is():
    text = 'events:\n  - type: a.b\n    schema: {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}\n'
    assert published(text).event_types[0].words == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}},
    }


@pytest.mark.parametrize("schema", ["true", "{}"])
def test_a_schema_that_asks_nothing_takes_everything(schema: str):
    assert published(f"events:\n  - type: a.b\n    schema: {schema}\n").event_types[0].takes_everything


@pytest.mark.parametrize(
    ("harm", "line", "column", "word"),
    [
        ("type: object", 5, 13, "known are string"),
        ("minimum: 1", 9, 42, 'not of type "number"'),
        ("{type: string}", 8, 19, "is a mapping, true or false"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_at_its_place(harm: str, line: int, column: int, word: str):
    to = {"type: object": "type: objekt", "minimum: 1": "minimum: x", "{type: string}": "text"}[harm]
    code, at, beside, message = refused(ORDER.replace(harm, to))
    assert (code, at, beside) == ("E_SPEC_INVALID", line, column)
    assert word in message


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("{$ref: 'https://example.com/order.json'}", "nothing is fetched"),
        ("{properties: {a: {$ref: '#/$defs/gone'}}}", "leads to no schema"),
        ("{pattern: '(?<=a)b'}", "look-around"),
        ("{allOf: [{$ref: '#'}]}", "never end"),
        ("{nullable: true}", "is not taken here"),
        ("{type: [string, null]}", "in quotes"),
        ("{type: null}", "in quotes"),
        ("", "a schema is a mapping"),
        ("[1]", "a schema is a mapping"),
    ],
)
def test_what_cannot_be_bounded_is_refused_at_publication(schema: str, word: str):
    code, line, _, message = refused(f"events:\n  - type: a.b\n    schema: {schema}\n")
    assert (code, line) == ("E_SPEC_INVALID", 3)
    assert word in message


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("events:\n  - type: a.b\n", "either a `schema`"),
        ("events:\n  - schema: true\n", "`type` is missing"),
        ("events:\n  - type: 'a b'\n    schema: true\n", "not an event type"),
        ("events:\n  - type: a.b\n    schema: true\n    shema: true\n", "shema"),
        ("events:\n  - a.b\n", "is a mapping with `type` and a schema"),
        ("events: a.b\n", "must be a list"),
        ("events:\n  - {type: a.b, schema: true}\n  - {type: a.b, schema: true}\n", "declared already"),
    ],
)
def test_a_declaration_that_is_none_is_refused(text: str, word: str):
    assert word in refused(text)[3]


def test_a_schema_that_asks_much_of_a_value_is_taken_with_a_word_about_it():
    patterns = ", ".join("{pattern: '^[a-z]+$'}" for _ in range(4))
    made = published(f"events:\n  - type: a.b\n    schema: {{allOf: [{patterns}]}}\n")
    assert [word for word in made.warnings if "a.b" in word and "bytes" in word]


def test_a_folder_s_file_with_event_types_alone_is_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "events.yaml").write_text(ORDER)
    assert list(collect([tmp_path / "flows"])) == ["flows/events.yaml"]


AVRO = """
events:
  - type: order.paid
    avro:
      type: record
      name: Order
      fields:
        - { name: order_id, type: string }
        - { name: paid_with, type: ["null", string], default: null }
"""


def test_avro_is_taken_in_its_own_words():
    made = published(AVRO).event_types[0]
    again = type(made).from_json(made.to_json())
    assert again == made
    assert again.compiled.mismatch({"order_id": "x", "paid_with": None}, 1) is None
    assert again.compiled.mismatch({"paid_with": "card"}, 1) is not None


@pytest.mark.parametrize(
    ("harm", "to", "line", "column", "word"),
    [
        ('["null", string]', '[string, "null"]', 9, 63, "first branch"),
        ('["null", string]', '["null", string, bytes]', 9, 53, "cannot be told apart"),
        ("type: string }", "type: text }", 8, 35, "no type that is known"),
        ("name: Order", "name: 1-Order", 5, 7, "is no name"),
        ("name: Order", "aliases: [Sale]", 6, 16, "`aliases` is not taken"),
    ],
)
def test_avro_that_is_wrong_is_refused_at_its_place(harm: str, to: str, line: int, column: int, word: str):
    code, at, beside, message = refused(AVRO.replace(harm, to))
    assert (code, at, beside) == ("E_SPEC_INVALID", line, column), message
    assert word in message


def test_a_type_has_one_schema():
    assert "either a `schema`" in refused("events:\n  - {type: a.b, schema: true, avro: string}\n")[3]


@pytest.mark.parametrize("name", ["docs/reference.md", "docs/guides/send-events.md"])
def test_what_the_documents_declare_is_taken(name: str):
    declared = [text for language, text in page(name).blocks if language == "yaml" and text.startswith("events:")]
    assert declared
    for text in declared:
        for one in published(text).event_types:
            if one.avro is not None:
                told = {"order_id": 2**53 + 1, "amount": "2499.00", "paid_with": {"shop.Card": {"last4": "4242"}}}
                assert one.compiled.mismatch(told, 100) is None


WORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**63, 2**90) | st.floats() | st.text(max_size=4),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "enum", "const", "properties", "items", "minimum", "default"]), inside
        )
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(schema=WORDS, key=st.sampled_from(["schema", "avro"]))
def test_what_is_taken_is_stored_and_read_again_as_it_was(schema: Any, key: str):
    """Whatever may stand in a file: it is refused there, or it is good for ever."""
    try:
        made = EventTypeSpec.model_validate({"type": "a.b", key: schema})
    except ValidationError:
        return
    again = EventTypeSpec.from_json(made.to_json())
    assert again.to_json() == made.to_json()
    assert repr(again.words) == repr(made.words)
