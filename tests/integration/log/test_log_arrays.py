"""Array literals are read by the server as the lists that they were made of."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from processors.adapters.postgres.arrays import literal, with_literals
from schemas.errors import Broken

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NASTY = [
    "",
    "NULL",
    "null",
    '"',
    "\\",
    '\\"',
    "{}",
    ",",
    "a b",
    " ",
    "\n",
    "\x01\x02",
    "é",
    "\N{SNOWMAN}",
    '{"n":"\\u0001"}',
]


async def read(dsn: str, values: list[Any], kind: str) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        row = await (
            await conn.execute(f"select %(values)s::{kind}[]".encode(), {"values": literal(values)})
        ).fetchone()
    assert row is not None
    found: list[Any] = row[0]
    return found


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", NASTY),
        ("text", [None, *NASTY, None]),
        ("text", [None, None]),
        ("text", [None, "", None, None, "", "", "N", None]),
        ("text", []),
        ("text", [""]),
        ("bigint", [1, -5, 2**62, None]),
        ("boolean", [True, False, None]),
        ("double precision", [0.1, -1e300, 1e-7, float("inf"), 3.0, None]),
        ("timestamptz", [datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), None, None]),
        ("timestamptz", [datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-3)))]),
        ("bytea", [b"", b'\\"\0\xff', None]),
        ("bytea", []),
        ("bytea", [b"x"] * 1000),
    ],
)
async def test_the_server_reads_what_was_meant(log_database: str, kind: str, values: list[Any]) -> None:
    assert await read(log_database, values, kind) == values


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.one_of(TEXTS, st.none()), max_size=30))
def test_any_text_comes_through(values: list[str | None]) -> None:
    """Read back by rules of the manual: quoted elements, with backslashes before quotes and backslashes."""
    assert parsed(str(literal(list(values)))) == values


def parsed(text: str) -> list[str | None]:
    assert text[0] == "{"
    assert text[-1] == "}"
    found, place = list[str | None](), 1
    while place < len(text) - 1:
        if text.startswith("NULL", place):
            found.append(None)
            place += 4
        else:
            element, place = "", place + 1
            while text[place] != '"':
                place += text[place] == "\\"
                element += text[place]
                place += 1
            found.append(element)
            place += 1
        place += text[place] == ","
    return found


def test_a_nul_is_refused_before_it_moves_a_border() -> None:
    with pytest.raises(Broken):
        literal(["a\0b", "c"])


def test_only_lists_are_turned() -> None:
    assert with_literals({"a": ["x"], "b": "x", "c": 1, "d": [[]]}) == {"a": '{"x"}', "b": "x", "c": 1, "d": [[]]}
