"""JSON at the doors has one reading and can be stored, or is refused with a code."""

import contextlib
import json
import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import strict_json
from schemas.errors import Refused

STORABLE_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STORABLE_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE_TEXT, inner, max_size=4),
    max_leaves=20,
)


def code_of(data: bytes) -> str:
    with pytest.raises(Refused) as caught:
        strict_json.decode(data)
    return caught.value.code


@given(VALUES)
def test_a_value_reads_back_equal_and_of_the_same_type(value: object):
    assert repr(strict_json.decode(strict_json.encode(value).encode())) == repr(value)


@pytest.mark.parametrize("data", [b'{"a":1,"a":1}', b'[{"x":{"b":1,"c":2,"b":3}}]', b'{"a":1,"\\u0061":2}'])
def test_a_key_that_stands_twice_is_refused_at_any_depth(data: bytes):
    assert code_of(data) == "E_DUPLICATE_KEY"


@pytest.mark.parametrize(
    "data",
    [
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e400",
        b"-1e400",
        b"",
        b"01",
        b"1 2",
        b"[1,]",
        b"'a'",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b'"\x00"',
        b'"\xed\xa0\x80"',
        b"9" * 1001,
        b"0." + b"1" * 2000,
        b"[" * 129 + b"]" * 129,
        b"[" * 500_000,
        b'{"a":' * 129 + b"1" + b"}" * 129,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_not_plain_json_is_refused(data: bytes):
    assert code_of(data) == "E_JSON_INVALID"


@pytest.mark.parametrize(
    "data",
    [
        b'"\\u0000"',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\ud83d\\u0041"',
        b'{"\\u0000":1}',
        b'"\\\\\\u0000"',
    ],
    ids=repr,
)
def test_text_that_postgres_cannot_store_is_refused(data: bytes):
    assert code_of(data) == "E_BODY_UNSTORABLE"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'"\\\\u0000"', "\\u0000"),
        (b'"\\\\\\\\ud800"', "\\\\ud800"),
        (b'"\\ud83d\\ude00\\u00e9"', "\U0001f600\u00e9"),
        (b'"\\uD83D\\uDE00\\/\\n"', "\U0001f600/\n"),
        (str(2**70).encode(), 2**70),
        (b'"' + b"9" * 1200 + b'"', "9" * 1200),
        (b'"[[[' + b"[" * 500 + b'"', "[[[" + "[" * 500),
        (b"[" * 128 + b"]" * 128, json.loads("[" * 128 + "]" * 128)),
        (b"[" + b"{}," * 1000 + b"[]]", [{}] * 1000 + [[]]),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_what_only_looks_forbidden_is_taken(data: bytes, value: object):
    assert strict_json.decode(data) == value
    strict_json.check(data)


KEYS = st.sampled_from(['"a"', '"b:c"', '"\\u0061"', '"a\\/"', '"a/"', '"\\u003a"', '":"'])
SCALARS = [
    "1",
    "-0",
    "1.0",
    "1e999",
    "NaN",
    "9" * 30,
    '""',
    '":"',
    '"\\":"',
    '"\\u003a"',
    '"\\u0000"',
    "01",
    "tru",
    "null",
]
GAPS = st.sampled_from(["", " ", "\n", "\t ", "\x0c", "\ufeff"])


@st.composite
def nearly_json(draw: st.DrawFn, depth: int = 3) -> str:
    """Texts in which keys stand twice, escapes stand for colons, and some of which are no JSON at all."""
    gap = draw(GAPS)
    if depth == 0 or draw(st.booleans()):
        return gap + draw(st.sampled_from(SCALARS))
    if draw(st.booleans()):
        return f"[{','.join(draw(st.lists(nearly_json(depth - 1), max_size=3)))}{gap}]"
    pairs = draw(st.lists(st.tuples(KEYS, nearly_json(depth - 1)), max_size=4))
    return "{" + ",".join(f"{gap}{key}{gap}:{value}" for key, value in pairs) + "}"


def fate(read: Callable[[bytes], object], data: bytes) -> str:
    try:
        read(data)
    except Refused as refused:
        return refused.code
    return "taken"


@given(nearly_json().map(str.encode) | st.binary(max_size=20) | VALUES.map(strict_json.encode).map(str.encode))
def test_checking_refuses_what_reading_refuses_and_nothing_else(data: bytes):
    assert fate(strict_json.check, data) == fate(strict_json.decode, data)


def test_a_float_stays_a_float():
    assert repr(strict_json.decode(b"[1.0,-0.0,1E2,1]")) == "[1.0, -0.0, 100.0, 1]"


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, {1: "a"}, {None: 1}, (1,), b"a", {"a": {1, 2}}, [{2.5: 1}]], ids=repr
)
def test_a_value_that_would_change_on_the_way_is_not_written(value: object):
    with pytest.raises(Refused) as caught:
        strict_json.encode(value)
    assert caught.value.code == "E_JSON_INVALID"


@pytest.mark.parametrize("value", ["\0", {"a\0": 1}, "\ud800", ["\udfff"]], ids=ascii)
def test_unstorable_text_is_not_written(value: object):
    with pytest.raises(Refused) as caught:
        strict_json.encode(value)
    assert caught.value.code == "E_BODY_UNSTORABLE"


def test_a_value_nested_too_deep_is_not_written():
    value: list[object] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(Refused, match="nested"):
        strict_json.encode(value)


@pytest.mark.parametrize(
    "data", [b"[" * 1_000_000, b'"' + b"\\u0041" * 160_000 + b'"', b"[" + b"{}," * 250_000 + b"1]"], ids=len
)
def test_a_hostile_megabyte_costs_no_more_than_a_fraction_of_a_second(data: bytes):
    started = time.process_time()
    with contextlib.suppress(Refused):
        strict_json.decode(data)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (b"[]", []),
        (b" [ ] \n", []),
        (b"[1]", [b"1"]),
        (b' [1.0 , "a]," ,\t{"b": [1, 2]},[ ]] ', [b"1.0", b'"a],"', b'{"b": [1, 2]}', b"[ ]"]),
        (rb'["\ud800", {"a":1,"a":2}, NaN, 1e999]', [rb'"\ud800"', b'{"a":1,"a":2}', b"NaN", b"1e999"]),
        ('["\u00e9"]'.encode(), ['"\u00e9"'.encode()]),
    ],
)
def test_an_array_is_split_into_its_items_byte_for_byte(text: bytes, items: list[bytes]) -> None:
    assert strict_json.split_array(text, 9) == items


@pytest.mark.parametrize("text", [b"{}", b"1", b'"[]"', b" null"])
def test_another_value_has_no_items(text: bytes) -> None:
    assert strict_json.split_array(text, 9) is None


BROKEN = [b"[", b"[1", b"[1,", b"[1,]", b"[,]", b"[1 2]", b"[1]]", b"[1] x", b"[\xff]", b"[a]", b"[" * 9999]


@pytest.mark.parametrize("text", BROKEN)
def test_an_array_whose_items_cannot_be_told_apart_is_refused(text: bytes) -> None:
    with pytest.raises(Refused) as caught:
        strict_json.split_array(text, 9)
    assert caught.value.code == "E_JSON_INVALID"


@given(st.lists(VALUES))
def test_what_is_written_as_an_array_is_split_into_what_was_written(values: list[object]) -> None:
    items = strict_json.split_array(json.dumps(values, indent=1).encode(), len(values))
    assert items is not None
    assert [json.loads(item) for item in items] == values


def test_of_too_many_items_one_more_than_allowed_is_split_off():
    assert strict_json.split_array(b"[1,2,3,4 and so on", 2) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b"\xef\xbb\xbf[1]", "byte order mark"),
        (b"", "the text is empty"),
        (b" \r\n", "the text is empty"),
    ],
)
def test_what_cannot_be_seen_is_named(data: bytes, said: str):
    for read in (strict_json.check, lambda body: strict_json.split_array(body, 10)):
        with pytest.raises(Refused, match=said) as caught:
            read(data)
        assert caught.value.code == "E_JSON_INVALID"
