"""Redrives: dead letters that a named person runs again, at a pace that the log keeps.

An order takes its letters at once: a letter is in one redrive, however many ask. From then on the scheduler redrives
them, each as a new run with its audit row, at the order's rate. The rates of a project's orders together stay under its
cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from processors.ports.runs import Grant, NewRun


@dataclass(frozen=True, slots=True)
class Candidate:
    """A letter that no redrive has. `envelope` is None where it was not asked for."""

    dead_letter_id: str
    run_id: str | None
    workflow_id: str | None
    trigger_id: str | None
    reason: str
    error_code: str
    redrive_count: int
    created_at: datetime
    envelope: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """What a person wants: these letters, in this order. `rate` is letters a second, `cap` what all redrives of a
    project may take together that has no cap of its own.
    """

    redrive_id: str
    project_id: str
    queue_id: str
    operator: str
    reason: str
    filter: str
    allow_stale: bool
    rate: float
    cap: float
    letters: Sequence[str]


@dataclass(frozen=True, slots=True)
class Started:
    """`letters` may be fewer than were ordered: another order was faster. `rate` is what the cap left."""

    letters: int
    rate: float


@dataclass(frozen=True, slots=True)
class DueRedrive:
    """An order with letters whose time has come: `allowed` of them. `done` tells its steps apart."""

    redrive_id: str
    project_id: str
    operator: str
    reason: str
    allow_stale: bool
    rate: float
    done: int
    allowed: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WaitingLetter:
    """A letter whose turn it is. Without an envelope it is gone from the dead letters."""

    dead_letter_id: str
    run_id: str | None
    workflow_id: str | None
    trigger_id: str | None
    error_code: str | None
    envelope: str | None


@dataclass(frozen=True, slots=True)
class Redriven:
    """A letter and its new run."""

    dead_letter_id: str
    old_run_id: str | None
    run: NewRun


@dataclass(frozen=True, slots=True)
class NotRedriven:
    """A letter that cannot be run now: it is free for another order."""

    dead_letter_id: str
    error_code: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at a due redrive comes to."""

    redrive: DueRedrive
    redriven: Sequence[Redriven]
    refused: Sequence[NotRedriven]


@dataclass(frozen=True, slots=True)
class OrderedRedrive:
    """An order as it stands. `waiting` letters will be redriven; who has stopped it has set them free."""

    redrive_id: str
    queue_id: str
    state: str  # under_way, done, stopped
    letters: int
    redriven: int
    refused: int
    waiting: int
    rate: float
    operator: str
    reason: str
    filter: str
    allow_stale: bool
    created_at: datetime
    ended_at: datetime | None
    stopped_by: str | None
    stop_reason: str | None


class Redrives(Protocol):
    """All of it raises `Unavailable` when Postgres is away."""

    async def candidates(
        self, project_id: str, queue_id: str, *, whole: bool, after: str | None, limit: int
    ) -> Sequence[Candidate]:
        """One page of the letters of a queue that are in no redrive, the oldest first."""

    async def start(self, order: Order) -> Started:
        """Take the letters, with the audit row of the order. Raises Refused E_REDRIVE_RATE where the project's other
        redrives leave no rate.
        """

    async def own_cap(self, project_id: str) -> float | None:
        """What the redrives of the project may take together; None: no more than others."""

    async def orders(
        self, project_id: str, *, under_way: bool, after: str | None, limit: int
    ) -> Sequence[OrderedRedrive]:
        """A page of the project's orders, the newest first; or of those that are under way."""

    async def stop(self, project_id: str, redrive_id: str, actor: str, reason: str) -> OrderedRedrive | None:
        """End an order: what it has redriven stays, its other letters are free. One that has ended stays as it is. None
        where the project has no such order.
        """

    async def due(self) -> Sequence[DueRedrive]:
        """The orders of which a letter is due now."""

    async def waiting(self, redrive: DueRedrive) -> Sequence[WaitingLetter]:
        """The letters whose turn it is."""

    async def commit(self, step: Step) -> Sequence[Grant]:
        """Runs, audit rows and pace in one transaction; nothing at all where another process took this step."""
