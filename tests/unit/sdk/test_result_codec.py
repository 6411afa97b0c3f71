"""A result comes back as it was, or is refused by name: nothing is changed in silence."""

import enum
import json
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from anthares44.automation.codec import Codec, decode, decode_input
from anthares44.automation.errors import ResultError
from anthares44.automation.redaction import Redaction


@dataclass(frozen=True)
class Money:
    cents: int
    currency: str = "BRL"


@dataclass
class Tenant:
    name: str
    paid: Money | None = None
    tags: list[str] = field(default_factory=list)
    db_password: str | None = None

    def __post_init__(self) -> None:
        self.name = self.name.upper()


@dataclass(slots=True)
class Slim:
    at: datetime


class Colour(enum.IntEnum):
    RED = 1


class Word(str):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - a plain one, as authors have it


def round_trip(value: Any) -> Any:
    return decode(Codec().encode(value))


SCALARS = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    | some.dates()
    | some.datetimes(timezones=some.none() | some.just(UTC))
    | some.uuids()
    | some.decimals(allow_nan=False, allow_infinity=False)
    | some.binary()
)
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.lists(inner) | some.dictionaries(some.sampled_from(["a", "$date", "$$x", "$", "b c"]), inner),
)


@given(VALUES)
def test_what_is_kept_comes_back_equal_and_of_the_same_type(value: Any):
    back = round_trip(value)
    assert back == value
    assert type(back) is type(value)
    assert Codec().encode(back) == Codec().encode(value)


@given(VALUES)
def test_the_text_is_strict_json(value: Any):
    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(Codec().encode(value), parse_constant=refuse)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, "1180591620717411303424"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        ("ação", '"ação"'),
        (datetime(2026, 11, 29, 20, 0, 1, 5, UTC), '{"$datetime":"2026-11-29T20:00:01.000005+00:00"}'),
        (date(2026, 11, 29), '{"$date":"2026-11-29"}'),
        (UUID(int=7), '{"$uuid":"00000000-0000-0000-0000-000000000007"}'),
        (Decimal("1.10"), '{"$decimal":"1.10"}'),
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        (
            Money(5),
            '{"$dataclass":{"type":"tests.unit.sdk.test_result_codec:Money","fields":{"cents":5,"currency":"BRL"}}}',
        ),
        ({"$date": "x"}, '{"$$date":"x"}'),
        ({"$$date": "x"}, '{"$$$date":"x"}'),
        ({"$date": "x", "more": 1}, '{"$date":"x","more":1}'),
    ],
)
def test_text_of_values(value: Any, text: str):
    assert Codec().encode(value) == text
    assert decode(text) == value


def test_a_dataclass_comes_back_as_it_was_without_its_code_being_run():
    tenant = Tenant("ana", Money(1), ["x"])
    tenant.name = "lower"
    assert round_trip([tenant]) == [tenant]
    assert round_trip([tenant])[0].name == "lower"
    slim = Slim(datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3))))
    assert round_trip(slim) == slim


@pytest.mark.parametrize("value", [Colour.RED, Word("w"), OrderedDict(a=1), True])
def test_subclasses_of_plain_types_come_back_equal(value: Any):
    assert round_trip({"v": value}) == {"v": value}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "result: nan is no JSON number"),
        (1e400, "result: inf is no JSON number"),
        ({"a": [1, {"b c": -1e400}]}, "result.a[1]['b c']: -inf"),
        ((1, 2), "result: tuple cannot be stored as JSON without change; return a list"),
        (Pair(1, 2), "Pair cannot be stored"),
        ({1, 2}, "set cannot be stored as JSON without change; return a list"),
        ({"a": {1: "x"}}, "result.a[1]: the key 1 is int; keys must be text"),
        ({None: "x"}, "the key None is NoneType"),
        ("a\x00b", "NUL"),
        ({"a\x00": 1}, "NUL"),
        (["\ud83d"], "result[0]: text with a lone surrogate at 0"),
        (10**1001, "more than 1,000 digits"),
        ([-(10**4400)], "result[0]: a number of more than 1,000 digits"),
        (Decimal("NaN"), "Decimal NaN"),
        (object(), "object cannot be stored"),
        (timedelta(1), "datetime.timedelta cannot be stored"),
        (Money, "type cannot be stored"),
        (bytearray(b"x"), "bytearray cannot be stored"),
        (lambda: 1, "function cannot be stored"),
    ],
)
def test_what_json_would_change_is_refused_by_name(value: Any, said: str):
    with pytest.raises(ResultError) as refusal:
        Codec().encode(value)
    assert refusal.value.code == "E_RESULT_NOT_JSON"
    assert said in str(refusal.value)


def test_what_never_ends_is_refused():
    circle: list[Any] = []
    circle.append({"again": circle})
    with pytest.raises(ResultError, match="nested deeper than 200 levels"):
        Codec().encode(circle)


def test_a_dataclass_that_no_other_process_could_find_is_refused():
    @dataclass
    class Local:
        a: int

    with pytest.raises(ResultError, match="must stand at the top of its module"):
        Codec().encode(Local(1))


def test_a_result_may_be_too_large():
    with pytest.raises(ResultError) as refusal:
        Codec(limit=10).encode({"a": "ção" * 3})
    assert refusal.value.code == "E_RESULT_TOO_LARGE"
    assert "23 bytes" in str(refusal.value)


def test_secrets_are_replaced_at_any_depth_and_in_dataclasses():
    value = {"rows": [{"accessToken": "t", "maxOutputTokens": 400}], "secret": ["a", b"b", {"ok": "o"}]}
    kept = round_trip(value | {"tenant": Tenant("ana", db_password="p")})
    assert kept["rows"] == [{"accessToken": "[redacted]", "maxOutputTokens": 400}]
    assert kept["secret"] == ["[redacted]", "[redacted]", {"ok": "o"}]
    assert kept["tenant"].db_password == "[redacted]"
    assert kept["tenant"].name == "ANA"


def test_a_project_may_exempt_names_in_any_case_style():
    codec = Codec(Redaction(["page_token"]))
    assert codec.encode({"pageToken": "p", "PAGE-TOKEN": "q", "token": "t"}) == (
        '{"pageToken":"p","PAGE-TOKEN":"q","token":"[redacted]"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"$unknown":1}',
        '{"$date":"yesterday"}',
        '{"$decimal":"x"}',
        '{"$uuid":3}',
        '{"$dataclass":{}}',
        '{"$dataclass":{"type":"os:system","fields":{}}}',
        '{"$dataclass":{"type":"tests.unit.sdk.test_result_codec:Money","fields":{"cents":1}}}',
    ],
)
def test_a_record_that_cannot_be_read_says_so(text: str):
    with pytest.raises(ValueError, match=r"tag|broken|format|string|record"):
        decode(text)


def test_nothing_in_an_input_is_a_tag():
    assert decode_input('{"at":{"$date":"2026-01-01"}}') == {"at": {"$date": "2026-01-01"}}
