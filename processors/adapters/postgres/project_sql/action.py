"""The action behind `sql/execute`: one statement in the project's own database, in one transaction.

The result is built and checked before the commit, so a result that cannot be recorded undoes its effect.
Values are bound by the server ($1, $2, ...), never written into the statement; rows are read one by one,
so a statement that returns too many is stopped, whatever the table holds.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any, cast

import psycopg
from psycopg import AsyncRawCursor
from psycopg.generators import fetch
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow

from processors.adapters.postgres.project_sql.connections import ProjectConnections
from processors.adapters.postgres.project_sql.failures import failure_of, timed_out
from processors.adapters.postgres.project_sql.values import bindable
from processors.ports.actions import ActionCall, StepFailure
from processors.ports.secrets import Secrets
from schemas import strict_json
from schemas.errors import Refused
from schemas.results import RESULT_BYTES, not_json, too_large
from topology.steps import SqlStep

_WHAT = "the result of the statement"
_OF_VALUES = frozenset({"E_JSON_INVALID", "E_DUPLICATE_KEY", "E_BODY_UNSTORABLE"})


class ProjectSql:
    """An `Action`. Open until `aclose`."""

    def __init__(self, secrets: Secrets, platform_dsn: str | None = None) -> None:
        self._connections = ProjectConnections(secrets, platform_dsn)

    async def __call__(self, call: ActionCall) -> str:
        if not isinstance(call.spec, SqlStep):
            raise TypeError(f"{call.spec.uses} is no statement")
        values = [bindable(value) for value in _parameters(call, call.spec)]
        try:
            async with (
                asyncio.timeout(call.timeout),
                self._connections.transaction(call.project_id, call.timeout) as connection,
            ):
                return await _execute(_StatementCursor(connection), call.spec.query, values)
        except TimeoutError as exc:
            raise StepFailure(timed_out(call.timeout)) from exc
        except psycopg.Error as exc:
            raise StepFailure(failure_of(exc, call.timeout)) from exc
        except Refused as exc:
            if exc.code in _OF_VALUES:
                raise not_json(_WHAT, exc) from exc
            raise

    async def aclose(self) -> None:
        await self._connections.aclose()


class _StatementCursor(AsyncRawCursor[TupleRow]):
    """Streams the rows of any statement. The driver's own `stream` refuses statements without rows, and
    forgets how many rows were touched; its `execute` would hold all rows in memory first.
    """

    affected = 0

    def _stream_fetchone_gen(self, first: bool) -> Generator[Any, Any, PGresult | None]:
        found: PGresult | None = yield from fetch(self._pgconn)
        if found is None:
            return None
        if found.status == ExecStatus.SINGLE_TUPLE:
            self.pgresult = found
            self._tx.set_pgresult(found, set_loaders=first)
            if first:
                self._make_row = self._make_row_maker()
            return found
        if found.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY):
            self.affected = found.command_tuples or 0
            while found is not None:
                found = yield from fetch(self._pgconn)
            return None
        self._raise_for_result(found)


async def _execute(cursor: _StatementCursor, query: str, values: list[Any]) -> str:
    rows: list[str] = []
    size = 0
    names: list[str] = []
    # Stopped early, the stream cancels the statement.
    async with aclosing(cast("AsyncGenerator[TupleRow]", cursor.stream(query.encode(), values))) as stream:
        async for row in stream:
            names = names or _column_names(cursor)
            text = strict_json.encode(dict(zip(names, row, strict=True)))
            size += len(text.encode()) + 1
            if size > RESULT_BYTES:
                raise too_large(_WHAT, f"over {RESULT_BYTES} bytes", RESULT_BYTES)
            rows.append(text)
    return f'{{"rowcount":{cursor.affected},"rows":[{",".join(rows)}]}}'


def _column_names(cursor: _StatementCursor) -> list[str]:
    names = [column.name for column in cursor.description or ()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refused("E_SQL", f"two columns of the result are called {twice}; name one of them with `as`")
    return names


def _parameters(call: ActionCall, step: SqlStep) -> list[Any]:
    template = step.bound_values
    if template is not None:
        return list(template.render(call.scope))
    return [call.lane] if step.binds_lane else []
