"""Regressions of the CEL library that the adapter works around. Each names what the library does by itself."""

import gc
import sys
from itertools import pairwise
from typing import Any

import pytest

from schemas.errors import Refused
from topology.expressions import compile_expression, compile_filter


def value(text: str, **scope: Any) -> Any:
    return compile_expression(text).evaluate(scope)


def test_reading_nulls_takes_no_reference_from_none() -> None:
    """value() of null hands out a reference that it does not own; on 3.11 that ends the process at last."""
    expressions = [compile_expression(text) for text in ("[input.a, null]", "{'a': null}", "input.a == null")]
    lone = compile_expression("true ? input.a : input.a")
    for _ in range(200):  # what the interpreter itself settles in its first rounds
        lone.evaluate({"input": {"a": None}})
    gc.collect()
    before = sys.getrefcount(None)
    for _ in range(1000):
        assert lone.evaluate({"input": {"a": None}}) is None
        for expression in expressions:
            expression.evaluate({"input": {"a": None}})
    gc.collect()
    assert sys.getrefcount(None) > before - 500


def test_an_integer_over_64_bits_does_not_spoil_its_neighbours() -> None:
    assert value("input.a + 1", input={"a": 1, "big": 2**70}) == 2
    assert value("[input][0].a", input={"a": 1, "big": 2**70}) == 1


@pytest.mark.parametrize("number", [2**64, 2**70, -(2**63) - 1, -(2**200), 10**300])
def test_an_integer_over_64_bits_comes_back_exactly(number: int) -> None:
    assert value("[input.n, 1]", input={"n": number}) == [number, 1]


def test_integers_over_64_bits_keep_their_order() -> None:
    numbers = [-(10**40), -(2**70), -(2**64), 2**64, 2**64 + 1, 2**70, 10**40]
    for low, high in pairwise(numbers):
        assert value("input.low < input.high", input={"low": low, "high": high}) is True
        assert value("input.low == input.high", input={"low": low, "high": high}) is False


def test_arithmetic_over_64_bits_is_an_error_and_no_guess() -> None:
    for text in ("input.n + 1", "input.n > 5", "string(input.n)", "9223372036854775807 + input.one"):
        with pytest.raises(Refused, match="E_EXPRESSION"):
            value(text, input={"n": 2**70, "one": 1})


def test_text_is_never_cut_at_nul() -> None:
    """The library takes text up to the first NUL: `a NUL b` would equal `a`."""
    with pytest.raises(Refused, match=r"U\+0000"):
        value("input.a == 'a'", input={"a": "a\0b"})
    with pytest.raises(Refused, match=r"U\+0000"):
        value("input == {}", input={"a\0b": 1})
    with pytest.raises(Refused, match=r"U\+0000"):
        value(r"'a' + '\u0000'")


def test_half_a_surrogate_pair_is_refused_and_not_an_unknown_error() -> None:
    with pytest.raises(Refused, match="surrogate"):
        value("input.a == 'a'", input={"a": "\ud800"})


def test_deep_data_is_refused_before_the_library_recurses_on_it() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Refused, match="nested deeper"):
        value("input.a == 1", input={"a": deep})


def test_what_json_does_not_know_is_refused() -> None:
    for text in ("b'x'", "type(1)", "1.0 / 0.0", "double('nan')", "{1: 2}", "[b'x']"):
        with pytest.raises(Refused, match="JSON does not know"):
            value(text)
    with pytest.raises(Refused, match="not JSON"):
        value("input.a == 1", input={"a": object()})


def test_times_come_back_as_text() -> None:
    assert value("timestamp('2026-07-19T14:02:11.884Z')") == "2026-07-19T14:02:11.884000Z"
    assert value("timestamp('2026-07-19T16:02:11+02:00')") == "2026-07-19T14:02:11Z"
    assert value("duration('90s')") == "90s"
    assert value("duration('1500ms')") == "1.5s"


def test_numbers_keep_their_kind() -> None:
    result = value("[1, 1.0, 1u, true, -0.0]")
    assert result == [1, 1.0, 1, True, 0.0]
    assert [type(item) for item in result] == [int, float, int, bool, float]


def test_a_value_that_is_an_error_is_raised() -> None:
    with pytest.raises(Refused, match="divide by zero"):
        value("1 / input.zero", input={"zero": 0})


def test_type_is_read_through_the_event() -> None:
    assert compile_filter("event.type == 'a.b'").matches({"type": "a.b", "data": {}})
