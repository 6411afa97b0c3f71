"""Connections to the log: one way to open them, with the settings that the log's promises need.

Durability settings are left on (a connection that turns them off is a defect); a transaction of ours
never outlives 30 s, so that the relay's horizon moves; a client that stops inside a transaction is
cut after 2 s, so that it holds no row lock.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from schemas.errors import Refused, Unavailable

_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "timezone": "UTC",
        "search_path": "pg_catalog",
        "transaction_timeout": "30s",
        "idle_in_transaction_session_timeout": "2s",
        "jit": "off",
        "plan_cache_mode": "auto",
    }.items()
)
# A plan that was made while little waited is kept while very much waits, until somebody analyzes: it must use the
# indexes from the start. Nothing that goes over these connections is better off with a scan of a table.
_HOT_OPTIONS = f"{_OPTIONS} -c enable_seqscan=off -c random_page_cost=1.1"


async def connect(dsn: str, role: str, more_options: str = "") -> AsyncConnection[TupleRow]:
    """Open one autocommit connection named after the process's role. `more_options` are further `-c name=value`."""
    try:
        return await AsyncConnection.connect(
            dsn,
            autocommit=True,
            application_name=f"a44-{role}",
            options=f"{_HOT_OPTIONS} {more_options}",
            connect_timeout=10,
            prepare_threshold=1,
        )
    except psycopg.OperationalError as exc:
        raise Unavailable("E_UNAVAILABLE", f"Postgres does not answer: {str(exc).strip()}") from exc
    except psycopg.ProgrammingError as exc:
        raise Refused("E_CONFIG", f"the Postgres address cannot be read: {str(exc).strip()}") from exc


@asynccontextmanager
async def open_pool(
    dsn: str, role: str, size: int = 4
) -> AsyncIterator[AsyncConnectionPool[AsyncConnection[TupleRow]]]:
    """A small pool for questions that are not on the hot path."""
    pool = AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        open=False,
        kwargs={
            "autocommit": True,
            "application_name": f"a44-{role}",
            "options": _OPTIONS,
            "connect_timeout": 10,
        },
    )
    async with pool:
        yield pool
