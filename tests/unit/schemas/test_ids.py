"""Ids: computed run ids agree everywhere, drawn ids tell their time, names follow the rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from schemas import ids

NOON = 1_784_500_000_000


def test_a_drawn_event_id_is_a_ulid_that_tells_its_time():
    drawn = ids.new_event_id(NOON)
    assert drawn.startswith("evt_")
    assert ULID.from_str(drawn[4:]).milliseconds == NOON
    assert ids.event_millis(drawn) == NOON
    assert ids.new_event_id(NOON) != drawn


@given(st.binary(min_size=10, max_size=10))
def test_a_drawn_id_is_written_as_ulids_are(randomness: bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids.os, "urandom", lambda _: randomness)
        drawn = ids.new_event_id(NOON)
    assert drawn == f"evt_{ULID(NOON.to_bytes(6, 'big') + randomness)}"


def test_a_dead_letter_id_tells_its_time():
    assert ULID.from_str(ids.dead_letter_id(NOON).removeprefix("dlq_")).milliseconds == NOON


def test_a_run_id_depends_on_project_event_trigger_and_version_alone():
    event = "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV"
    first = ids.run_id("acme", event, "trg_a", 1)
    assert first == ids.run_id("acme", event, "trg_a", 1)
    assert ids.is_run_id(first)
    assert ids.event_millis("evt_" + first[4:]) == ids.event_millis(event)
    others = [("shop", event, "trg_a", 1), ("acme", event, "trg_b", 1), ("acme", event, "trg_a", 2)]
    assert len({first, *(ids.run_id(*other) for other in others)}) == 4


def test_a_run_id_keeps_its_value_between_versions_of_this_program():
    assert ids.run_id("acme", "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "trg_a", 1) == "run_01ARZ3NDEKHACSA0WSMMHKAYDD"


PRINTABLE = st.text(st.characters(exclude_categories=["C"]))


@given(st.tuples(PRINTABLE, PRINTABLE, PRINTABLE), st.tuples(PRINTABLE, PRINTABLE, PRINTABLE))
def test_project_event_and_trigger_do_not_run_into_each_other(one: tuple[str, str, str], other: tuple[str, str, str]):
    assert (ids.run_id(*one, 1, NOON) == ids.run_id(*other, 1, NOON)) == (one == other)


@pytest.mark.parametrize("event", ["evt_01J9XQ7M4K", "order-17", "evt_" + "I" * 26, "evt_8" + "Z" * 25])
def test_an_event_id_of_another_form_takes_the_time_of_acceptance(event: str):
    assert ids.event_millis(event) is None
    assert ids.event_millis("evt_" + ids.run_id("acme", event, "trg_a", 1, NOON)[4:]) == NOON
    with pytest.raises(ValueError, match="time of acceptance"):
        ids.run_id("acme", event, "trg_a", 1)


def test_the_time_of_acceptance_changes_nothing_for_an_event_of_that_day():
    event = ids.new_event_id(NOON)
    assert ids.run_id("acme", event, "trg_a", 1, NOON + 3_600_000) == ids.run_id("acme", event, "trg_a", 1)


def test_an_invented_year_in_an_event_id_gives_way_to_the_time_of_acceptance():
    event = "evt_7" + "Z" * 25
    assert ids.event_millis("evt_" + ids.run_id("acme", event, "trg_a", 1, NOON)[4:]) == NOON


@pytest.mark.parametrize("name", ["acme", "a1", "a_b-c", "a" * 63])
def test_project_names_that_are_taken(name: str):
    assert ids.is_project_id(name)


@pytest.mark.parametrize("name", ["", "a", "1a", "Acme", "automation", "a b", "a" * 64, "acme\n", "é1"])
def test_project_names_that_are_refused(name: str):
    assert not ids.is_project_id(name)


def test_declared_things_carry_a_prefix_and_their_name():
    assert ids.workflow_id("invoice-settle") == "wf_invoice_settle"
    assert ids.queue_id("invoice-settle") == "q_invoice_settle"
    assert ids.trigger_id("refund-large") == "trg_refund_large"
    assert ids.connector_id("payments") == "con_payments"


def test_times_outside_a_ulid_are_refused():
    with pytest.raises(ValueError, match="years"):
        ids.new_event_id(2**48)
    with pytest.raises(ValueError, match="years"):
        ids.new_event_id(-1)


def test_the_ids_of_runs_of_a_span_lie_within_its_bounds():
    first, last = ids.run_id_range(NOON, NOON + 1)
    inside = [ids.run_id("acme", f"e{n}", "trg_a", 1, NOON + n % 2) for n in range(50)]
    outside = [ids.run_id("acme", f"e{n}", "trg_a", 1, NOON + n) for n in (-1, 2)]
    assert all(first <= run <= last for run in inside)
    assert not any(first <= run <= last for run in outside)
