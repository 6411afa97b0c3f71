"""Expressions: exact paths, filters, conditions, places of faults, bounds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import Refused
from topology.expressions import (
    MAX_TEXT,
    STEP_VARIABLES,
    compile_condition,
    compile_expression,
    compile_filter,
)

REFUND = "data.amountCents > 500000 && data.currency == 'BRL'"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@contextmanager
def a_value_or(code: str) -> Iterator[None]:
    """What happens inside may be refused, with this code and no other."""
    try:
        yield
    except Refused as error:
        if error.code != code:
            raise


def value(text: str, **scope: Any) -> Any:
    return compile_expression(text).evaluate(scope)


def refusal(text: str, **scope: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        value(text, **scope)
    return caught.value


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        ({"amountCents": 500001, "currency": "BRL"}, True),
        ({"amountCents": 500000, "currency": "BRL"}, False),
        ({"amountCents": 500001, "currency": "USD"}, False),
        ({"amountCents": 500001.5, "currency": "BRL"}, True),
        ({"amountCents": 2**63, "currency": "BRL"}, True),
        ({"amountCents": 500001}, False),
        ({"currency": "BRL"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_filter_passes_or_misses(data: object, passes: bool) -> None:
    assert compile_filter(REFUND).matches({"type": "billing.refund.requested", "data": data}) is passes


@pytest.mark.parametrize("amount", ["500001", None, [], {}, 2**64, "\0"])
def test_what_a_filter_cannot_compare_is_an_error_and_no_miss(amount: object) -> None:
    with pytest.raises(Refused) as caught:
        compile_filter(REFUND).matches({"data": {"amountCents": amount, "currency": "BRL"}})
    assert caught.value.code == "E_FILTER_ERROR"


def test_an_absent_field_is_a_miss_also_under_not() -> None:
    assert not compile_filter("!(data.a == 1)").matches({"data": {}})
    assert not compile_filter("data.list[3] == 1").matches({"data": {"list": [1]}})
    assert compile_filter("!has(data.a)").matches({"data": {}})


def test_a_filter_that_gives_no_truth_is_an_error() -> None:
    with pytest.raises(Refused, match="not true or false"):
        compile_filter("data.a").matches({"data": {"a": "yes"}})
    with pytest.raises(Refused, match="not true or false"):
        compile_filter("1 + 1")


def test_a_filter_sees_the_event_and_its_data_only() -> None:
    assert compile_filter("event.partition_key == 'k'").matches({"partition_key": "k", "data": {}})
    with pytest.raises(Refused, match="undeclared reference to 'input"):
        compile_filter("input.a == 1")


def test_a_condition_takes_no_absent_field_for_false() -> None:
    condition = compile_condition("input.total > 10")
    assert condition.holds({"input": {"total": 11}})
    assert not condition.holds({"input": {"total": 10}})
    with pytest.raises(Refused, match="total"):
        condition.holds({"input": {}})


def test_a_condition_may_stand_in_braces() -> None:
    assert compile_condition("{{ input.ok }}").holds({"input": {"ok": True}})


@given(json_values)
def test_a_path_gives_the_very_value(item: object) -> None:
    scope = {"input": {"a": {"b": [0, item]}}, "steps": {"get-it": item}}
    assert value("input.a.b[1]", **scope) is item
    assert value("steps['get-it']", **scope) is item
    assert value('steps["get-it"]', **scope) is item


def test_a_path_reads_beyond_the_bounds_of_cel() -> None:
    large = {"items": list(range(100_000)), "n": 2**70, "f": 1.0, "text": "x" * 200_000}
    assert value("input.items", input=large) is large["items"]
    assert value("input.n", input=large) == 2**70
    assert type(value("input.f", input=large)) is float


def test_an_expression_binds_only_what_it_reads() -> None:
    large = {"ok": True, "rest": ["x" * 1000] * 1000, "nul": "\0", "big": 2**70}
    assert value("input.ok && steps['a'].n == 1", input=large, steps={"a": {"n": 1}, "b": large}) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input.list.map(input, input + 1)", [2, 3]),
        ("input.list.exists(x, x == input.two)", True),
        (".input.two", 2),
        ("input.m['k'] + input.two", 3),
        ("input[input.key]", 2),
        ("size(input.m)", 1),
        ("input.m.k == 1 && size(input) == 5", True),
        ("'k' in input.m", True),
        ("has(input.m.k) && !has(input.m.z)", True),
        ("input.m == {'k': 1}", True),
        ("input.list.size()", 2),
        ("// a note\n input.two + 0", 2),
        ("r'input' + \"'\" + input.key", "input'two"),
    ],
)
def test_reading_less_changes_no_result(text: str, expected: object) -> None:
    scope = {"two": 2, "list": [1, 2], "m": {"k": 1}, "key": "two", "other": None}
    assert value(text, input=scope) == expected


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("input.a +", 9),
        ("input.a == foo", 11),
        ("input.a\n  + @", 12),
        ("'a' + 1", 4),
        ("", 0),
        ("input.a\0", 7),
        ("'\ud800'", 1),
    ],
)
def test_a_fault_has_its_offset(text: str, offset: int) -> None:
    error = refusal(text)
    assert (error.code, error.details["offset"]) == ("E_EXPRESSION", offset)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("data.code = 'E_X'", "; equality is written `==`"),
        ("data.a and data.b", "; and is written `&&`, or is `||`"),
        ("data.a OR data.b", "; and is written `&&`, or is `||`"),
        ("data.a & data.b", "; and is written `&&`, or is `||`"),
        ("data.code == 'E_X", "; this text is not closed"),
        ("data.a >", "; the expression ends too early"),
        ("(data.a", "; the expression ends too early"),
        ("data.a)", "expecting <EOF>"),
    ],
)
def test_what_other_languages_write_is_told_as_it_is_written_here(text: str, advice: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_filter(text)
    assert caught.value.message.endswith(advice)


def test_faults_name_the_way_out() -> None:
    assert "steps['reserve-funds']" in refusal("steps.reserve-funds.id").message
    with pytest.raises(Refused, match="elsewhere it is `input`"):
        compile_expression("data.a", STEP_VARIABLES)
    assert refusal("input.a.b", input={"a": 1}).message.endswith("`input.a` is a number, which has no `b`")


@pytest.mark.parametrize(
    "text",
    [
        "input.__class__",
        "input.__class__.__init__.__globals__",
        "cycler.__init__.__globals__",
        "__import__('os').system('true')",
        "input.a.format(input)",
        "(lambda: 1)()",
    ],
)
def test_nothing_of_python_can_be_reached(text: str) -> None:
    refusal(text, input={"a": "x"})


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000 + "1" + ")" * 2000,
        "[" * 2000,
        "!" * 4000 + "true",
        "1" + "+1" * 2000,
        "input" + ".a" * 2000,
        "true ? 1 : " * 300 + "1",
        "x" * (MAX_TEXT + 1),
        "'" + "x" * 100_000 + "'",
        "9" * 3000,
        "input.l" + ".map(a, [a, a])" * 40,
        "[" + "input.s + " * 300 + "'']",
        "[1].map(a, " + " + ".join(["input.s"] * 20) + ").map(b, " + " + ".join(["b"] * 20) + ")",
    ],
)
def test_a_hostile_expression_ends_soon(text: str) -> None:
    started = time.perf_counter()
    with a_value_or("E_EXPRESSION"):
        value(text, input={"l": [1, 2], "s": "x" * 1000})
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "text",
    [
        "input.l.all(x, !input.s.matches('^(a|b|c|ab|bc|[a-z]{1,20}){1,30}d$'))",
        "input.l.all(x, input.l.all(y, input.l.all(z, x + y + z >= 0)))",
        "input.l.map(x, input.s)",
        "input.s.matches('(a+)+$')",
        "input.s.matches(input.s)",
    ],
)
def test_hostile_data_ends_soon(text: str) -> None:
    started = time.perf_counter()
    with a_value_or("E_EXPRESSION"):
        value(text, input={"l": list(range(500)), "s": "ab" * 20_000})
    assert time.perf_counter() - started < 5


@settings(deadline=None)
@given(st.text(max_size=60), json_values)
def test_any_text_over_any_data_gives_a_value_or_a_refusal(text: str, item: object) -> None:
    with a_value_or("E_EXPRESSION"):
        value(text, input=item)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["input", ".", "a", "[", "]", "'k'", "0", "(", ")", "+", "==", " ", "{", "}"])),
    json_values,
)
def test_any_mix_of_tokens_gives_a_value_or_a_refusal(parts: list[str], item: object) -> None:
    with a_value_or("E_EXPRESSION"):
        value("".join(parts), input=item)


@given(st.dictionaries(st.sampled_from(["amountCents", "currency", "x"]), json_values))
def test_any_event_passes_misses_or_is_an_error(data: object) -> None:
    with a_value_or("E_FILTER_ERROR"):
        assert compile_filter(REFUND).matches({"data": data}) in (True, False)
