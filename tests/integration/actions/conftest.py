"""A project with its own database, and the action that works in it."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from processors.adapters.postgres.project_sql import ProjectSql
from processors.ports.actions import ActionCall, StepFailure
from schemas.records import ErrorInfo
from tests.support.action_calls import SecretsInMemory, call_of


@dataclass
class Project:
    """The project's database and the action that works in it."""

    dsn: str
    secrets: SecretsInMemory
    action: ProjectSql

    async def run(self, query: str, params: list[Any] | None = None, **call: Any) -> Any:
        return json.loads(await self.action(statement(query, params, **call)))

    async def failure(self, query: str, params: list[Any] | None = None, **call: Any) -> ErrorInfo:
        with pytest.raises(StepFailure) as failed:
            await self.action(statement(query, params, **call))
        return failed.value.error

    async def ask(self, query: str, *values: Any) -> list[Any]:
        """Beside the action, as the project's own programs would."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description is not None else []

    async def sessions(self) -> int:
        query = "select count(*) from pg_stat_activity where datname = current_database() and application_name = %s"
        [(count,)] = await self.ask(query, "a44-sql")
        return int(count)


def statement(query: str, params: list[Any] | None = None, **call: Any) -> ActionCall:
    bound = (
        "" if params is None else f"\n  params: {json.dumps([f'{{{{ input.p{at} }}}}' for at in range(len(params))])}"
    )
    given = {f"p{at}": value for at, value in enumerate(params or [])}
    step = f"- id: write\n  uses: sql/execute\n  timeout: 5s\n  query: {json.dumps(query)}{bound}"
    return call_of(step, given=given, **call)


@pytest_asyncio.fixture
async def project(database: str) -> AsyncIterator[Project]:
    secrets = SecretsInMemory({"sec_database": database})
    action = ProjectSql(secrets)
    found = Project(database, secrets, action)
    await found.ask(
        "create table invoices (id text primary key, status text, amount int8 check (amount >= 0), data jsonb)"
    )
    await found.ask("insert into invoices values ('inv_1', 'open', 100, null), ('inv_2', 'open', 200, null)")
    try:
        yield found
    finally:
        await action.aclose()
