"""The door: how an accepted webhook, event or manual run becomes durable, and what the caller is told."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from processors.ports.runs import NewRun
from schemas.stored_bodies import StoredBody


class Outcome(StrEnum):
    CREATED = "created"
    DUPLICATE = "deduplicated"
    CONFLICT = "conflict"
    FILTERED = "filtered"
    OUTDATED = "outdated"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One thing to accept. Either `envelope` (bytes for the events topic) or `run` (a manual run) is set.

    `window` is how long the key is remembered, in seconds, where the
    project has no window of its own. `run_id` is None for a published event. `catalog` is the
    version that it was decided by, None for what no catalog decides. `body` has to be in storage before the door hears
    of it.
    """

    project_id: str
    idempotency_key: str
    key_source: str
    body_hash: bytes
    event_id: str
    partition_key: str
    run_id: str | None
    envelope: bytes | None = None
    run: NewRun | None = None
    window: float = 86_400.0
    catalog: int | None = None
    body: StoredBody | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the key stands for. On CREATED the ids are the caller's own, otherwise the first acceptance's.

    `key_age` is in seconds; `first_body_hash` differs from the caller's on CONFLICT. Nothing was accepted on OUTDATED,
    where the catalog has changed and the caller decides anew, and on FILTERED, where a filter wants nothing made of it.
    """

    outcome: Outcome
    event_id: str
    run_id: str | None
    key_age: float
    first_body_hash: bytes


class Door(Protocol):
    def now(self) -> datetime:
        """The database's clock as last seen, carried on by this process's monotonic clock."""

    async def accept(self, item: Acceptance) -> Answer:
        """Durable when it returns. Raises `Unavailable` when Postgres is away; nothing was accepted then."""
