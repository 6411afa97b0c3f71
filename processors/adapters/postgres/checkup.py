"""What can be told of the log's database from outside, for `a44 doctor`: it only reads, over one connection."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import dict_row

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.migrations import shipped
from processors.adapters.postgres.statements import statements


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """`clock_ahead` is how many seconds the server's clock is before this machine's. Migrations are named: those that
    are missing, those whose file has changed since, and those that only a newer version knows.
    """

    version_number: int
    version: str
    clock_ahead: float
    durability_off: Sequence[str]
    data_directory: str | None
    missing: Sequence[str]
    changed: Sequence[str]
    newer: Sequence[str]


async def look_at_database(dsn: str) -> DatabaseFacts:
    """Raises Unavailable where it does not answer, Refused E_CONFIG for an address that cannot be read."""
    sql = statements("checkup")
    conn = await connect(dsn, "doctor")
    async with conn:
        cursor = conn.cursor(row_factory=dict_row)
        asked = time.time()
        server = await (await cursor.execute(sql["describe_server"])).fetchone() or {}
        here = (asked + time.time()) / 2
        found = await (await conn.execute(sql["has_ledger"])).fetchone()
        has_ledger = found is not None and bool(found[0])
        rows = await (await conn.execute(sql["read_ledger"])).fetchall() if has_ledger else []
    applied = {number: (name, checksum) for number, name, checksum in rows}
    own = {migration.number: migration for migration in shipped()}
    return DatabaseFacts(
        version_number=server["version_number"],
        version=server["version"],
        clock_ahead=server["seconds"] - here,
        durability_off=server["durability_off"],
        data_directory=server["data_directory"],
        missing=[one.name for number, one in own.items() if number not in applied],
        changed=[one.name for number, one in own.items() if number in applied and applied[number][1] != one.checksum],
        newer=[name for number, (name, _) in applied.items() if number not in own],
    )
