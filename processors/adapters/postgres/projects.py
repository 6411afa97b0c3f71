"""What projects have set for themselves, in Postgres: read beside the doors, changed with its audit row."""

from collections.abc import Mapping, Sequence

from psycopg.rows import class_row, tuple_row

from processors.adapters.postgres.pooled import Pool, ask, borrowed
from processors.adapters.postgres.statements import statements
from processors.ports.projects import FIGURES, Figures


class PostgresProjects:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("projects")

    async def rates(self) -> dict[str, float]:
        return dict(await ask(self._pool, self._sql["find_rates"], {}, tuple_row))

    async def list_projects(self, after: str | None, limit: int) -> Sequence[Figures]:
        wanted = {"after": after or "", "limit": limit}
        return await ask(self._pool, self._sql["list_projects"], wanted, class_row(Figures))

    async def find(self, project_id: str) -> Figures | None:
        rows = await ask(self._pool, self._sql["find_project"], {"project_id": project_id}, class_row(Figures))
        return rows[0] if rows else None

    async def change(
        self, project_id: str, figures: Mapping[str, float | None], actor: str, reason: str
    ) -> Figures | None:
        """The row is made and locked first, so that the audit log tells one order of changes."""
        wanted = {"project_id": project_id, "actor": actor, "reason": reason, **figures}
        wanted |= {f"sets_{name}": name in figures for name in FIGURES}
        wanted = {**dict.fromkeys(FIGURES), **wanted}
        async with borrowed(self._pool) as conn, conn.transaction():
            await conn.execute(self._sql["make_row"], wanted)
            async with conn.cursor(row_factory=class_row(Figures)) as cursor:
                await cursor.execute(self._sql["change_figures"], wanted)
                return await cursor.fetchone()
