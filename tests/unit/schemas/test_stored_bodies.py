"""What stands for a body that is too large to travel: where the limit lies, and whose reference is believed."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from schemas.envelope import Envelope, data_hash, decode_envelope, encode_envelope, referring
from schemas.errors import Refused
from schemas.stored_bodies import (
    MOST_INLINE,
    Reference,
    StoredBody,
    is_content_of,
    parsed,
    standing_for,
    too_large_to_travel,
)

NOW = datetime(2026, 7, 19, 23, 59, tzinfo=UTC)


def text(size: int) -> str:
    return f'"{"x" * (size - 2)}"'


def stored(data: str = text(MOST_INLINE + 1)) -> StoredBody:
    body = too_large_to_travel("acme", data, NOW)
    assert body is not None
    return body


def envelope(**changes: Any) -> Envelope:
    plain = Envelope(
        id="1",
        type="order.paid",
        idempotency_key="k",
        partition_key="p",
        occurred_at="2026-07-19T14:02:11Z",
        data=text(MOST_INLINE + 1),
        project_id="acme",
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize("size", [2, MOST_INLINE // 4, MOST_INLINE - 1, MOST_INLINE])
def test_up_to_256_kb_travels_whole(size: int):
    assert too_large_to_travel("acme", text(size), NOW) is None


def test_one_byte_more_goes_to_storage():
    body = stored()
    assert len(body.content) == 262_145
    assert str(body.reference) == f"20260719/acme/{sha256(body.content).hexdigest()}"


def test_the_limit_counts_bytes_and_not_characters():
    assert too_large_to_travel("acme", f'"{"é" * (MOST_INLINE // 2 - 1)}"', NOW) is None
    assert too_large_to_travel("acme", f'"{"é" * (MOST_INLINE // 2)}"', NOW) is not None


def test_a_repetition_on_the_same_day_is_the_same_object():
    assert stored() == stored()
    assert stored().reference != stored(text(MOST_INLINE + 2)).reference


def test_a_reference_comes_back_as_it_was_told():
    reference = stored().reference
    assert parsed(str(reference)) == reference
    assert is_content_of(reference, stored().content)
    assert not is_content_of(reference, b"{}")


@pytest.mark.parametrize(
    "told",
    [
        "",
        "a",
        f"20260719/acme/{'0' * 63}",
        f"20260719/acme/{'G' * 64}",
        f"20260719/automation/{'0' * 64}",
        f"20260719/../{'0' * 64}",
        f"../20260719/acme/{'0' * 64}",
        f"20260719/acme/{'0' * 64}\n",
    ],
)
def test_what_is_no_reference_is_none(told: str):
    assert parsed(told) is None


def test_an_event_refers_to_its_data_by_place_size_and_hash():
    whole = envelope()
    carried = referring(whole, stored())
    assert (carried.data, carried.data_size) == ("null", 262_145)
    assert carried.data_sha256 == stored().reference.sha256
    assert data_hash(carried) == data_hash(whole)
    assert decode_envelope(encode_envelope(carried)) == carried
    assert len(encode_envelope(carried)) < 400


def test_what_stands_for_an_input_tells_the_same_in_json():
    told = msgspec.json.decode(standing_for(stored()))
    assert told == {
        "data_ref": str(stored().reference),
        "data_size": 262_145,
        "data_sha256": stored().reference.sha256,
    }


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("data_ref", {"data_ref": "elsewhere"}),
        ("data_ref", {"data_ref": str(Reference("20260719", "other", "0" * 64)), "data_sha256": "0" * 64}),
        ("data_sha256", {"data_sha256": "0" * 64}),
        ("data_sha256", {"data_sha256": "x"}),
        ("data_size", {"data_size": -1}),
        ("data", {"data": "{}"}),
    ],
)
def test_b09_no_event_refers_to_what_is_another_projects_or_to_other_content(field: str, changes: dict[str, Any]):
    carried = msgspec.structs.replace(referring(envelope(), stored()), **changes)
    with pytest.raises(Refused) as caught:
        decode_envelope(encode_envelope(carried))
    assert caught.value.details["field"] == field


def test_an_envelope_of_the_first_version_has_its_data_in_it():
    told = decode_envelope(b'{"id":"1","type":"t","idempotency_key":"k","partition_key":"p","data":1,'
                           b'"occurred_at":"2026-07-19T14:02:11Z","project_id":"acme"}')  # fmt: skip
    assert (told.data, told.data_ref, told.data_size) == ("1", None, 0)
