"""Dead letters in Postgres: lists through the slow pool, and reads of what they hold whole, each with its audit row."""

from collections.abc import Sequence
from dataclasses import asdict

from psycopg.rows import class_row

from processors.adapters.postgres.pooled import Pool, ask
from processors.adapters.postgres.statements import statements
from processors.ports.dead_letters import DeadLetter, LetterFilter, LettersOfCode, OneLetter, Reader, Whole


class PostgresDeadLetters:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("dead_letters")

    async def stats(self, wanted: LetterFilter) -> Sequence[LettersOfCode]:
        return await ask(self._pool, self._sql["count_letters"], asdict(wanted), class_row(LettersOfCode))

    async def list_letters(self, wanted: LetterFilter) -> Sequence[DeadLetter]:
        return await ask(self._pool, self._sql["list_letters"], asdict(wanted), class_row(DeadLetter))

    async def find(self, reader: Reader, dead_letter_id: str) -> OneLetter | None:
        asked = {**asdict(reader), "dead_letter_id": dead_letter_id}
        rows = await ask(self._pool, self._sql["find_letter"], asked, class_row(OneLetter))
        return rows[0] if rows else None

    async def read_whole(self, reader: Reader, dead_letter_id: str) -> Whole | None:
        """A question that broke is asked again: then it is written down twice, never not at all."""
        asked = {**asdict(reader), "dead_letter_id": dead_letter_id}
        rows = await ask(self._pool, self._sql["read_whole"], asked, class_row(Whole))
        return rows[0] if rows else None
