"""What projects have set for themselves, where a process has to know it beforehand."""

from psycopg.rows import tuple_row

from processors.adapters.postgres.pooled import Pool, ask
from processors.adapters.postgres.statements import statements


class PostgresProjects:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def rates(self) -> dict[str, float]:
        """How many events a second each project may send to a gateway; those without a limit are left out."""
        return dict(await ask(self._pool, statements("projects")["find_rates"], {}, tuple_row))
