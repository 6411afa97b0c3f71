"""Results as they are recorded; the rules of names stand in the conformance vectors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import strict_json
from schemas.errors import Refused
from schemas.results import RESULT_BYTES, redact, seal, write

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "token", "X-Api-Key", "b c"]), inner),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_sealing_twice_changes_nothing(value: Any):
    once = seal(strict_json.encode(value), "it")
    assert seal(once, "it") == once


@given(JSON)
def test_only_text_in_secret_fields_changes(value: Any):
    def same(before: Any, after: Any) -> None:
        if isinstance(before, dict):
            assert before.keys() == after.keys()
            for name in before:
                same(before[name], after[name])
        elif isinstance(before, list):
            assert len(before) == len(after)
            for left, right in zip(before, after, strict=True):
                same(left, right)
        else:
            assert type(before) is type(after)
            assert after in (before, "[redacted]")

    same(value, redact(value))


def test_exempt_names_are_kept_in_any_case_style():
    value = {"pageToken": "p", "next_page_token": "n", "token": "t"}
    assert redact(value, exempt=["page_token"]) == {
        "pageToken": "p", "next_page_token": "[redacted]", "token": "[redacted]",
    }  # fmt: skip


def test_size_counts_bytes_as_recorded():
    text = "ç" * (RESULT_BYTES // 2 - 1)
    assert len(write(text, "it").encode()) == RESULT_BYTES
    with pytest.raises(Refused) as refusal:
        write(text + "x", "it")
    assert refusal.value.code == "E_RESULT_TOO_LARGE"
    assert "keep the data elsewhere" in refusal.value.message


def test_no_message_repeats_a_key_or_text_of_the_data():
    for text in ('{"card-4111":1,"card-4111":2}', '{"a": "card-4111\\u0000"}', '{"a": card-4111}', '"card-4111'):
        with pytest.raises(Refused) as refusal:
            seal(text, "it")
        assert "4111" not in refusal.value.message


def test_deep_nesting_is_refused():
    with pytest.raises(Refused) as refusal:
        seal("[" * 100_000 + "]" * 100_000, "it")
    assert refusal.value.code == "E_RESULT_NOT_JSON"
