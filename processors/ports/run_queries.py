"""Questions about runs, and the one request that users may make of a live one: cancel.

Every question names the project: a run of another project does not exist. Pages are ordered by run id,
newest first. Values (input, result) are JSON text as stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What to list. `step` is the step at which a run stands: its last one that did not succeed."""

    state: str | None = None
    step: str | None = None
    workflow_id: str | None = None
    since: datetime | None = None
    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    run_id: str
    workflow_id: str
    version: str
    state: str
    current_step: str | None
    error_code: str | None
    event_type: str
    trigger_id: str
    queue_id: str
    lane: str
    idempotency_key: str
    partition_key: str
    occurred_at: datetime
    accepted_at: datetime
    started_at: datetime | None
    visible_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunPage:
    """`total` counts what the filter matches, on all pages."""

    total: int
    runs: Sequence[RunSummary]
    next: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """All of a run's head. `error` is the stored text of its last error."""

    run_id: str
    workflow_id: str
    version: str
    state: str
    event_id: str
    event_type: str
    trigger_id: str
    queue_id: str
    lane: str
    idempotency_key: str
    partition_key: str
    correlation_id: str | None
    operation_version: int
    redrive_count: int
    generation: int
    fence: int
    occurred_at: datetime
    accepted_at: datetime
    created_at: datetime
    started_at: datetime | None
    visible_at: datetime | None
    ended_at: datetime | None
    cancel_requested: bool
    input: str
    result: str | None
    error_code: str | None
    error: str | None
    deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One record of a run's log."""

    run_id: str
    generation: int
    seq: int
    kind: str
    step_id: str
    attempt: int
    status: str
    final: bool
    idempotency_key: str | None
    error_code: str | None
    error: str | None
    result: str | None
    due_at: datetime | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class RefusedOutcome:
    """The outcome of an attempt whose run had another owner by then: it changed nothing, and is kept to be seen."""

    step_id: str
    attempt: int
    fence: int
    status: str
    idempotency_key: str | None
    error_code: str | None
    error: str | None
    result: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class History:
    """A run with the newest of its records, and of the outcomes that came too late, in their order."""

    run: Run
    attempts: Sequence[Attempt]
    late: Sequence[RefusedOutcome]


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """A run that a door has promised and ingest has not made yet."""

    run_id: str
    event_id: str
    idempotency_key: str
    accepted_at: datetime


@dataclass(frozen=True, slots=True)
class EventRun:
    """A run that an event has made."""

    run_id: str
    trigger_id: str
    workflow_id: str
    version: str
    state: str
    error_code: str | None
    accepted_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class TakenEvent:
    """An event that was decided: the runs that it made, none where no trigger asked for it. `taken_at` is None where
    only its runs are known any more.
    """

    event_id: str
    taken_at: datetime | None
    runs: Sequence[EventRun]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Why a pending run waits: its queue's use and limit, and the runs before it in its lane."""

    running: int
    max_concurrency: int
    ahead: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a reader of a run's log is."""

    run_id: str
    generation: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What lies behind a cursor; `ended` is the terminal state, seen before the records were read."""

    records: Sequence[Attempt]
    ended: str | None


class RunQueries(Protocol):
    """All of it raises `Unavailable` when Postgres is away."""

    async def check_ready(self) -> None:
        """Postgres answers and has this version's schema. Raises `Unavailable` E_UNAVAILABLE or E_MIGRATION."""

    async def find_run(self, project_id: str, run_id: str) -> Run | None: ...

    async def find_accepted(self, project_id: str, run_id: str) -> AcceptedRun | None: ...

    async def attempts(self, project_id: str, run_id: str, limit: int) -> Sequence[Attempt]:
        """The newest records, in their order."""

    async def late_attempts(self, project_id: str, run_id: str, limit: int) -> Sequence[RefusedOutcome]:
        """The newest outcomes that came too late, in their order."""

    async def list_runs(self, project_id: str, wanted: RunFilter) -> RunPage: ...

    async def find_event(self, project_id: str, event_id: str) -> TakenEvent | None:
        """None for an event that was not decided (yet)."""

    async def queue_place(self, project_id: str, run_id: str) -> QueuePlace | None: ...

    async def states(self, run_ids: Sequence[str]) -> Mapping[str, str]:
        """The states of these runs; a run that is only accepted is left out."""

    async def ended(self, run_ids: Sequence[str], limit: int) -> Mapping[str, History]:
        """Those of these runs that have ended, each with at most `limit` of its records."""

    async def news(self, cursors: Sequence[Cursor]) -> Mapping[Cursor, News]:
        """What lies behind each cursor, where there is something."""

    async def request_cancel(self, project_id: str, run_id: str, reason: str, actor: str) -> str:
        """Leave the wish in the run's mail and wake it. Answers the state it was in; raises Refused
        E_RUN_NOT_FOUND, E_RUN_ENDED and `Unavailable` for a run that is accepted but not made yet.
        """
