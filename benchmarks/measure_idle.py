"""Measures what the service does when there is nothing to do: statements a minute and CPU, all roles up.

Statements are lines of the server's own log (each `begin` and `commit` is one), so nothing escapes. CPU is that of the
roles together; what Postgres and the broker add is told apart.
"""

import asyncio
import re
from pathlib import Path

from psycopg import AsyncConnection

from benchmarks.figures import Figures, Scale
from benchmarks.measure_w3 import parts
from benchmarks.processor_time import Meter
from ops.local import LocalStack

SETTLE_SECONDS = 3
STATEMENT = re.compile(r"^.{10,60} LOG:  (?:statement|execute [^:]*): (.*)", re.MULTILINE)
SERVERS = ("postgres", "broker")
HERE = Path(__file__).parent


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    seconds = scale.of(20, 8)
    await _set_logging(stack, "log_all_statements.sql")
    await asyncio.sleep(SETTLE_SECONDS)
    log = stack.folder / "logs" / "postgres.log"
    begin, meter = log.stat().st_size, Meter(parts(stack))
    await asyncio.sleep(seconds)
    used = {part: 100 * one / seconds for part, one in meter.used().items()}
    with log.open("rb") as file:
        file.seek(begin)
        statements = STATEMENT.findall(file.read().decode("utf-8", "replace"))
    await _set_logging(stack, "log_no_statements.sql")
    used.pop("client"), used.pop("hosts")
    return {
        "idle_statements_per_minute": len(statements) * 60 / seconds,
        "idle_core_percent": sum(one for part, one in used.items() if part not in SERVERS),
        "idle_core_percent_with_servers": sum(used.values()),
        "idle_core_percent_by_part": used,
    }


async def _set_logging(stack: LocalStack, script: str) -> None:
    """`alter system` will not stand in a transaction, so its statements go one by one."""
    async with await AsyncConnection.connect(stack.servers.postgres_dsn, autocommit=True) as conn:
        for statement in (HERE / script).read_bytes().split(b";\n")[:2]:
            await conn.execute(statement)
