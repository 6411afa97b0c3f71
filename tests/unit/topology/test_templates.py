"""Templates: types kept, text joined, null never written as text."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Refused
from topology.lanes import MAX_LANE, lane_value
from topology.templates import compile_template


@contextmanager
def a_value_or(code: str) -> Iterator[None]:
    """What happens inside may be refused, with this code and no other."""
    try:
        yield
    except Refused as error:
        if error.code != code:
            raise


SCOPE = {
    "input": {"id": "inv_1", "n": 2**70, "f": 1.0, "none": None, "yes": True, "list": [1, {"k": "v"}], "o": {"é": 1}},
    "steps": {"reserve-funds": {"ref": "r1"}},
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ input.id }}", "inv_1"),
        ("{{input.n}}", 2**70),
        ("{{ input.f }}", 1.0),
        ("{{ input.none }}", None),
        ("{{ input.list }}", [1, {"k": "v"}]),
        ("a {{ input.id }} b {{ steps['reserve-funds'].ref }}", "a inv_1 b r1"),
        (" {{ input.id }}", " inv_1"),
        ("{{ input.id }}{{ input.n }}", f"inv_1{2**70}"),
        ("x{{ input.yes }}{{ input.f }}{{ input.list }}{{ input.o }}", 'xtrue1.0[1,{"k":"v"}]{"é":1}'),
        ("{{ '}}' }}{{ \"{{\" }}", "}}{{"),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{ {'a': {'b': 1}}['a']['b'] }}!", "1!"),
        ("plain }} text { }", "plain }} text { }"),
        ({"a": ["{{ input.id }}", 1, None], "b": {"c": "x"}}, {"a": ["inv_1", 1, None], "b": {"c": "x"}}),
        (["{{ input.none }}"], [None]),
        (17, 17),
        (None, None),
    ],
)
def test_a_template_renders(template: object, expected: object) -> None:
    result = compile_template(template).render(SCOPE)
    assert result == expected
    assert type(result) is type(expected)


def test_null_is_never_written_as_text() -> None:
    with pytest.raises(Refused, match="null cannot become text"):
        compile_template("id-{{ input.none }}").render(SCOPE)
    chosen = "id-{{ input.none == null ? 'none' : input.none }}"
    assert compile_template(chosen).render(SCOPE) == "id-none"


@pytest.mark.parametrize(
    ("text", "offset"),
    [("abc {{ input.x", 4), ("{{ foo }}", 3), ("a {{ input.x + }}", 14), ("{{}}", 2), ("{{ 'a }}", 3)],
)
def test_a_fault_has_its_offset_in_the_whole_text(text: str, offset: int) -> None:
    with pytest.raises(Refused) as caught:
        compile_template(text)
    assert (caught.value.code, caught.value.details["offset"]) == ("E_EXPRESSION", offset)


def test_variables_may_be_fewer() -> None:
    with pytest.raises(Refused, match="undeclared"):
        compile_template("{{ steps['a'] }}", ("input",))


def test_inserted_values_pass_through_an_encoder_and_the_text_around_them_does_not() -> None:
    template = compile_template("a/{{ input.id }}", encode=str.upper)
    assert template.render(SCOPE) == "a/INV_1"


def test_a_text_has_a_bound() -> None:
    large = {"input": {"s": "x" * 600_000}}
    with pytest.raises(Refused, match="would pass"):
        compile_template("{{ input.s }}{{ input.s }}").render(large)


@given(st.text())
def test_text_without_braces_is_itself(text: str) -> None:
    plain = text.replace("{{", "{")
    assert compile_template(plain).render({}) == plain


@given(st.text(max_size=40))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    with a_value_or("E_EXPRESSION"):
        compile_template("{{" + text)


def test_a_lane_is_text() -> None:
    template = compile_template("{{ input.key }}")
    assert lane_value(template, {"input": {"key": "cust_1"}}) == "cust_1"
    assert lane_value(template, {"input": {"key": 4471}}) == "4471"


@pytest.mark.parametrize("key", [None, "", "  ", "a\nb", "a\0b", "x" * (MAX_LANE + 1)])
def test_a_key_that_would_mix_unrelated_runs_is_no_lane(key: object) -> None:
    with pytest.raises(Refused) as caught:
        lane_value(compile_template("{{ input.key }}"), {"input": {"key": key}})
    assert caught.value.code == "E_EXPRESSION"
