"""Dead letters: what failed for good, told by code and sentence; what they hold whole is read under audit.

A project sees its own. Records that name no project (bytes that are no envelope, rows that the broker refused) are
asked for with no project, which only an operator may do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.kept_records import KeptRecord


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """What to list or to count. `project_id` None: what belongs to no project. `after` is the last id of a page."""

    project_id: str | None
    queue_id: str | None = None
    error_code: str | None = None
    since: datetime | None = None
    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as lists show it: nothing in here was written by the sender but ids. `redrive_id`: the order that
    has it, `redriven_as` the run that it became.
    """

    dead_letter_id: str
    project_id: str | None
    queue_id: str
    run_id: str | None
    workflow_id: str | None
    trigger_id: str | None
    reason: str
    error_code: str
    summary: str
    redrive_count: int
    source_topic: str | None
    source_partition: int | None
    source_offset: int | None
    created_at: datetime
    redrive_id: str | None
    redriven_as: str | None
    redriven_at: datetime | None


@dataclass(frozen=True, slots=True)
class OneLetter(DeadLetter):
    """A letter by itself, of a record with the key and the headers that it came with (see `schemas.kept_records`)."""

    record_key: bytes | None
    record_headers: str | None
    record_left_out: int

    @property
    def kept(self) -> KeptRecord:
        return KeptRecord(self.record_key, self.record_headers, self.record_left_out)


@dataclass(frozen=True, slots=True)
class LettersOfCode:
    """How many letters of a queue have one code and reason, and how many of them have run again."""

    error_code: str
    reason: str
    count: int
    redriven: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class Whole:
    """What a letter keeps: of a run its envelope as JSON text, of a record its bytes as they came."""

    envelope: str | None
    raw: bytes | None


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, and of which project the audit row is. `sees_unowned`: also what belongs to no project."""

    project_id: str
    actor: str
    sees_unowned: bool = False


class DeadLetters(Protocol):
    """All of it raises `Unavailable` when Postgres is away."""

    async def stats(self, wanted: LetterFilter) -> Sequence[LettersOfCode]:
        """Counts by code and reason, the most frequent first."""

    async def list_letters(self, wanted: LetterFilter) -> Sequence[DeadLetter]:
        """One page, newest first."""

    async def find(self, reader: Reader, dead_letter_id: str) -> OneLetter | None: ...

    async def read_whole(self, reader: Reader, dead_letter_id: str) -> Whole | None:
        """What the letter keeps. That it was read is in the audit log when this returns."""
