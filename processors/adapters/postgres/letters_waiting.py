"""How many dead letters wait for somebody, by queue, and how long the oldest has: measures of the upkeep.

What it reads is bounded for each queue; where more wait, the bound is told. Letters that ran again do not count.
"""

from typing import Final

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from processors.adapters.postgres.statements import statements
from processors.ports.measures import Measures

_log = structlog.get_logger("letters_waiting")
MOST_COUNTED: Final = 10_000  # letters of a queue


class LettersWaiting:
    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._told: set[tuple[str, str]] = set()

    async def tell(self, conn: AsyncConnection[TupleRow]) -> None:
        """A queue that was told once is told as empty when it is; a question that fails is asked at the next upkeep."""
        try:
            rows = await (
                await conn.execute(statements("dead_letters")["count_waiting"], {"most": MOST_COUNTED})
            ).fetchall()
        except psycopg.Error as exc:
            _log.warning("sweep_failed", part="count_waiting", reason=str(exc).strip())
            return
        found = {(project, queue): (depth, oldest) for project, queue, depth, oldest in rows}
        self._told |= found.keys()
        for queue in self._told:
            depth, oldest = found.get(queue, (0, 0.0))
            self._measures.set("dlq_depth", depth, *queue)
            self._measures.set("dlq_oldest_seconds", oldest, *queue)
