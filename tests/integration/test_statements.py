"""Every statement of the product is understood by the server on the migrated schema."""

import re
from pathlib import Path

import psycopg
import pytest

from processors.adapters.postgres import statements as home
from processors.adapters.postgres.migrations import migrate
from processors.adapters.postgres.statements import statements

TOPICS = sorted(path.stem for path in (Path(home.__file__).parent / "sql").glob("*.sql") if path.stem != "migrations")
UNPREPARED = "listen|notify|lock|unlisten|set|reset|discard|close|comment|alter|drop"


@pytest.mark.parametrize("topic", TOPICS)
async def test_every_statement_can_be_prepared(topic: str, database: str) -> None:
    await migrate(database)
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        for name, statement in statements(topic).items():
            text = statement.replace("{day}", "outbox")  # a name that is put in when it is asked
            if re.match(rf"(--.*\n)*({UNPREPARED})\b", text, re.IGNORECASE):
                continue
            numbered, names = text, sorted(set(re.findall(r"%\((\w+)\)s", text)))
            for place, parameter in enumerate(names, 1):
                numbered = numbered.replace(f"%({parameter})s", f"${place}")
            await conn.execute(f"prepare {topic}_{name} as {numbered.replace('%%', '%')}".encode())


async def test_a_second_migration_does_nothing(database: str) -> None:
    assert await migrate(database)
    assert await migrate(database) == []
