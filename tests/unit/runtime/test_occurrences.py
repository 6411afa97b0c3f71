"""Keys of scheduled times: one for each occurrence, the same whoever asks, and a repetition is told."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.ports.door import Answer, Outcome
from processors.runtime.occurrences import occurrence_key, warning_of

PARIS = ZoneInfo("Europe/Paris")


def test_b04_a_key_is_made_of_the_trigger_and_the_nominal_occurrence() -> None:
    day = datetime(2026, 10, 24, 20, 0, tzinfo=PARIS)
    keys = [occurrence_key("trg_close", day + timedelta(days=days)) for days in range(3)]
    assert keys[0] == "trg_close:2026-10-24T20:00:00+02:00"
    assert len(set(keys)) == 3  # no window of keys swallows the next day's
    assert occurrence_key("trg_close", datetime(2026, 10, 24, 20, 0, 0, 999, tzinfo=PARIS)) == keys[0]
    assert occurrence_key("trg_open", day) != keys[0]


def test_b04_the_two_passes_through_a_repeated_hour_are_two_occurrences() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=PARIS)
    assert occurrence_key("trg_a", first) == "trg_a:2026-10-25T02:30:00+02:00"
    assert occurrence_key("trg_a", first.replace(fold=1)) == "trg_a:2026-10-25T02:30:00+01:00"


def test_b04_a_time_without_an_offset_has_no_key() -> None:
    with pytest.raises(ValueError, match="has no offset"):
        occurrence_key("trg_a", datetime(2026, 10, 25, 2, 30))  # noqa: DTZ001  which is what is refused


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["trg_a", "trg_a:b", "trg_b"]),
            st.datetimes().map(lambda at: at.replace(microsecond=0)),
            st.integers(-14 * 60, 14 * 60),
        ),
        unique=True,
    )
)
def test_b04_no_two_occurrences_share_a_key(drawn: list[tuple[str, datetime, int]]) -> None:
    keys = {occurrence_key(name, at.replace(tzinfo=timezone(timedelta(minutes=off)))) for name, at, off in drawn}
    assert len(keys) == len(drawn)


def answer(outcome: Outcome) -> Answer:
    return Answer(outcome, "evt_1", "run_1", 61.5, b"")


def test_b04_an_occurrence_that_had_its_run_is_a_warning_and_a_new_one_is_none() -> None:
    key = occurrence_key("trg_a", datetime(2026, 1, 1, tzinfo=UTC))
    assert warning_of(key, answer(Outcome.CREATED)) is None
    told = warning_of(key, answer(Outcome.DUPLICATE))
    assert told == f"the occurrence {key} had its run already: run_1, 62 s ago; no other was started"
    assert "conflict" in (warning_of(key, answer(Outcome.CONFLICT)) or "")
