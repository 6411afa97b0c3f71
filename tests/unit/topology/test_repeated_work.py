"""What is done for each item of a list is bounded by what it would come to, not by the length of its text."""

import time

import pytest

from schemas.errors import Refused
from topology.expressions import compile_filter

_TEN = "[1,2,3,4,5,6,7,8,9,10]"


@pytest.mark.parametrize(
    "text",
    [
        "data.l.map(a, data.s + data.s).size() > 0",
        "data.l.map(a, [data.s + data.s + data.s]).size() > 0",
        "data.l.all(a, data.s + data.s != 'x')",
        "data.l.map(a, data.l + data.l).size() > 0",
        "data.l.map(a, [bytes(data.s), bytes(data.s)]).size() > 0",
        f"{_TEN}.map(a, {_TEN}.map(b, {_TEN}.map(c, data.s + data.s))).size() > 0",
        "data.l.map(a, data.s).map(b, b + b).map(c, c + c).size() > 0",
        f"[{', '.join(['data.s'] * 400)}].map(a, {' + '.join(['a'] * 25)}).size() > 0",
        "data.l.all(a, !data.s.contains(data.t))",
        "data.l.all(a, !(-1 in data.l || -2 in data.l))",
        "data.l.all(a, data.l == data.l && data.l != data.s)",
        f"data.l.all(a, {' && '.join(['data.s.size() > 0'] * 80)})",
    ],
)
def test_a_loop_that_repeats_large_data_is_refused_before_it_begins(text: str) -> None:
    data = {"l": list(range(3500)), "s": "a" * 24_000, "t": "a" * 8_000 + "b"}
    wanted = compile_filter(text)

    started = time.process_time()
    with pytest.raises(Refused, match=r"too much work: up to \d+ times .* read less inside its loops") as refused:
        wanted.matches({"data": data})

    assert refused.value.code == "E_FILTER_ERROR"
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        "data.lines.all(l, l.sku + l.name != '' && l.qty + l.free > 0)",
        "data.lines.exists(l, l.sku == data.wanted && l.name.contains(data.part))",
        "data.lines.map(l, data.prefix + '-' + l.sku).size() > 0",
        "data.lines.all(l, l.sku in data.known)",
        "data.orders.all(o, o.lines.all(l, l.qty > 0 && l.sku + '-' + o.id != ''))",
        "data.numbers.all(n, n != -1)",
        "data.numbers.map(n, n + 1).size() > 0",
    ],
)
def test_a_loop_over_what_events_really_hold_passes(text: str) -> None:
    line = {"sku": "A-1", "name": "a thing", "qty": 1, "free": 0}
    data = {
        "lines": [line] * 800,
        "orders": [{"id": f"ord_{number}", "lines": [line] * 8} for number in range(80)],
        "numbers": list(range(7000)),
        "known": [f"A-{number}" for number in range(100)],
        "wanted": "A-1",
        "part": "thing",
        "prefix": "shop",
    }

    assert compile_filter(text).matches({"data": data})
