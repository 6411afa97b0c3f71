"""Lengths of time in definitions."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.durations import UNITS, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("15s", 15.0), ("5m", 300.0), ("2h", 7200.0), ("1d", 86400.0), ("1.5h", 5400.0), (3, 3.0)],
)
def test_a_length_is_read_in_seconds(text: object, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "5 s", "s", "-5s", "5S", "1h30m", "٣s", "0s", 0, -1, True, None, [], float("nan"), 10**400]
)
def test_anything_else_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="length of time"):
        parse_seconds(text)


@given(st.text(max_size=20) | st.floats() | st.integers())
def test_a_length_is_above_zero_or_refused(value: object) -> None:
    with suppress(ValueError):
        assert 0 < parse_seconds(value) < 10**18


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)))
def test_every_unit_scales(count: int, unit: str) -> None:
    assert parse_seconds(f"{count}{unit}") == pytest.approx(count * UNITS[unit])
