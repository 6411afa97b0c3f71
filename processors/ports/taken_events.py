"""What a project's events came to, as pages and as news: each with the runs that it has made.

Events are ordered by their ids, which doors make, and are there once ingest has taken them. One whose id its producer
chose is found by that id alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from processors.ports.run_queries import EventRun


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """`type` and `idempotency_key` are those of its runs: None where it has made none."""

    event_id: str
    accepted_at: datetime
    taken_at: datetime
    type: str | None
    idempotency_key: str | None
    runs: Sequence[EventRun]


class Mark(NamedTuple):
    """How far a follower of a project is: what `snapshot` saw was told; `event_id` is the newest of that, or a time in
    the form of one.
    """

    project_id: str
    snapshot: str
    event_id: str


class FreshEvents(NamedTuple):
    """What is new since a mark, the oldest first, and the mark from which to ask again."""

    events: Sequence[SeenEvent]
    mark: Mark


class TakenEvents(Protocol):
    """All of it raises `Unavailable` when Postgres is away."""

    async def list_events(
        self, project_id: str, *, since: datetime | None, after: str | None, limit: int
    ) -> Sequence[SeenEvent]:
        """One page, the newest first, behind the event `after`."""

    async def mark(self, project_id: str, since: datetime) -> Mark:
        """From where to follow what was accepted from then on."""

    async def fresh(self, mark: Mark) -> FreshEvents:
        """What was taken since; an event that was redriven is told anew. Not found is what was taken more than half a
        minute later than an event that was accepted after it.
        """
