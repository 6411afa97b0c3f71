"""SQL lives in .sql files: no statement stands in a Python string of the product."""

import re

from tests.support.sources import PRODUCT, modules, name_of, texts

STATEMENT = re.compile(
    r"""^\s*(
        select\s[\s\S]*\sfrom\s | select\s+[\w.]+\( | insert\s+into\s | update\s+[\w.{}"]+\s+set\s | delete\s+from\s
      | (create|alter|drop)\s+(table|index|schema|role|database|function|type|view|sequence|extension)\s
      | with\s+\w+\s+as\s*\( | truncate\s+ | copy\s+[\w.{}"]+[\s(][\s\S]*\b(from|to)\s+stdin
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def test_no_statement_stands_in_a_python_string() -> None:
    found = [
        f"{name_of(path)}:{line}: {text.strip()[:60]!r}"
        for path in modules(*PRODUCT)
        for line, text in texts(path)
        if STATEMENT.match(text)
    ]
    assert not found, "move to a .sql file:\n" + "\n".join(found)


def test_the_check_sees_statements_and_lets_prose_pass() -> None:
    for statement in (
        "select 1 from t",
        "\n  INSERT INTO a.b (c) values (1)",
        'update a."b" set c = 1',
        "with x as (select 1) select * from x",
        "select pg_notify('a', 'b')",
        "create table t (id int)",
        "copy t (a) from stdin",
    ):
        assert STATEMENT.match(statement), statement
    for prose in ("select a folder", "update the settings", "with care", "drop it", "copy the token", "delete"):
        assert not STATEMENT.match(prose), prose
