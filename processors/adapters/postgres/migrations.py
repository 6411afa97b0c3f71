"""Brings a database to this version's schema: forward only, each file once, one process at a time."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from psycopg.errors import UndefinedTable

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from processors.ports import crash_points
from schemas.errors import Refused

_NAME = re.compile(r"^(\d{4})_(pre|post)_[a-z0-9_]+\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def shipped() -> list[Migration]:
    """The migrations of this version in order."""
    found = [entry for entry in files("schemas").joinpath("migrations").iterdir() if _NAME.match(entry.name)]
    return [
        Migration(int(entry.name[:4]), entry.name, entry.read_text("utf-8"))
        for entry in sorted(found, key=lambda e: e.name)
    ]


async def migrate(dsn: str, progress: Callable[[str], None] = lambda _: None) -> list[str]:
    """Apply what is missing; answer the names applied. Raises `E_MIGRATION` when a shipped file was changed."""
    sql = statements("migrations")
    applied: list[str] = []
    conn = await connect(dsn, "migrate")
    async with conn:
        await conn.execute(sql["create_ledger"])
        for migration in shipped():
            async with conn.transaction():
                await conn.execute(sql["lock_ledger"])
                row = await (await conn.execute(sql["find_migration"], {"number": migration.number})).fetchone()
                if row is not None:
                    _check_unchanged(migration, row[0])
                    continue
                progress(migration.name)
                await conn.execute(migration.text.encode())
                await conn.execute(
                    sql["record_migration"],
                    {"number": migration.number, "name": migration.name, "checksum": migration.checksum},
                )
                crash_points.reach("in_migration_before_commit")
                applied.append(migration.name)
    return applied


def _check_unchanged(migration: Migration, recorded: str) -> None:
    if recorded != migration.checksum:
        raise Refused(
            "E_MIGRATION",
            f"{migration.name} differs from the file that was applied to this database; "
            "migrations are never edited: install the version that the database was made with, or a newer one",
        )


async def check_schema(dsn: str) -> None:
    """Raises `E_MIGRATION` when the database has not all migrations of this version."""
    conn = await connect(dsn, "check")
    async with conn:
        try:
            rows = await (await conn.execute(statements("migrations")["applied"])).fetchall()
        except UndefinedTable as exc:
            raise Refused("E_MIGRATION", "the database holds no schema yet; run a44 migrate first") from exc
    missing = [migration.name for migration in shipped() if migration.number not in {row[0] for row in rows}]
    if missing:
        raise Refused("E_MIGRATION", f"the database lacks {', '.join(missing)}; run a44 migrate first")
