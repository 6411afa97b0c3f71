"""Connections to the log: one way to open them, with the settings that the log's promises need.

Durability settings are left on (a connection that turns them off is a defect); a transaction of ours
never outlives 30 s, so that the relay's horizon moves; a client that stops inside a transaction is
cut after 2 s, so that it holds no row lock. A server that vanished is noticed within about ten seconds.
"""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from processors.adapters.postgres.pooled import ASK_SECONDS
from schemas.errors import Refused, Unavailable

_SETTINGS = {
    "timezone": "UTC",
    "search_path": "pg_catalog",
    "transaction_timeout": "30s",
    "idle_in_transaction_session_timeout": "2s",
    "jit": "off",
    "plan_cache_mode": "auto",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
# A plan that was made while little waited is kept while very much waits, until somebody analyzes: it must use the
# indexes from the start. Nothing that goes over these connections is better off with a scan of a table, or with a plan
# for its very values: where months or days are partitions, planning takes longer than the statement.
_HOT = "-c enable_seqscan=off -c random_page_cost=1.1 -c plan_cache_mode=force_generic_plan"
_HOT_OPTIONS = f"{_OPTIONS} {_HOT}"
# A question that takes longer than anybody waits for its answer only keeps others from asking.
_POOL_OPTIONS = f"{_OPTIONS} -c statement_timeout=15s"
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,  # milliseconds: what was sent and is not acknowledged
}


async def connect(dsn: str, role: str, more_options: str = "") -> AsyncConnection[TupleRow]:
    """Open one autocommit connection named after the process's role. `more_options` are further `-c name=value`."""
    try:
        return await AsyncConnection.connect(
            _with_keepalive(dsn),
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


def _with_keepalive(dsn: str) -> str:
    """What the address itself says of keepalives counts more."""
    return make_conninfo("", **{**_KEEPALIVE, **conninfo_to_dict(dsn)})


def cut(conn: AsyncConnection[TupleRow]) -> None:
    """End a connection whose server does not answer: whoever waits on it hears at once that it broke.

    Neither a cancellation (the driver then waits for the server to confirm it) nor `close` would wake them.
    """
    # It may have broken meanwhile, or the driver closed it.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def open_pool(
    dsn: str, role: str, size: int = 4, *, patience: float = 5.0, hot: bool = False
) -> AsyncIterator[AsyncConnectionPool[AsyncConnection[TupleRow]]]:
    """A small pool for questions. `patience` is how long somebody waits for a free connection, in seconds; a restart
    of Postgres that takes less is not noticed by whoever asks. `hot` is for what is asked all the time by key.
    """
    pool = AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        open=False,
        timeout=patience,
        max_waiting=50 * size,
        reconnect_timeout=ASK_SECONDS,  # its own pauses grow until they are longer than anybody waits
        kwargs={
            **_KEEPALIVE,
            "autocommit": True,
            "application_name": f"a44-{role}",
            "options": f"{_POOL_OPTIONS} {_HOT}" if hot else _POOL_OPTIONS,
            "prepare_threshold": 1 if hot else 5,
            "connect_timeout": 10,
        },
    )
    async with pool:
        yield pool
