"""The executor's journal: one fenced transaction for everything that gathered.

A journal is one session. When the session is over nothing that it holds can be committed any more, and the
runs belong to somebody else: whoever hears `SessionOver` forgets all of its runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from schemas.records import ErrorInfo, Record


class SessionOver(Exception):
    """The session commits nothing any more."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A run that this session owns from now on, as its head row says."""

    run_id: str
    fence: int
    generation: int
    project_id: str
    workflow_id: str
    definition_id: int
    version: str
    queue_id: str
    lane: str
    lane_seq: int | None
    event_id: str
    event_type: str
    trigger_id: str
    idempotency_key: str
    partition_key: str
    correlation_id: str | None
    operation_version: int
    redrive_count: int
    occurred_at: datetime
    accepted_at: datetime
    started_at: datetime
    crashes: int
    max_attempts: int
    input: str
    owner_lost: bool
    has_mail: bool
    deadline_at: datetime | None = None
    stale_at: datetime | None = None
    input_ref: str | None = None

    @property
    def is_stale(self) -> bool:
        """Nobody had claimed it before its event was too old: it is not begun, whoever claims it after that."""
        return self.stale_at is not None and self.started_at > self.stale_at


class Mail(msgspec.Struct, frozen=True, gc=False):
    mail_id: int
    run_id: str
    kind: str
    body: str
    actor: str


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record and whose it is."""

    run_id: str
    generation: int
    project_id: str
    record: Record


class RunEnd(msgspec.Struct, frozen=True, gc=False):
    """A run ends. In error it becomes a dead letter: `dead_letter_id`, `reason` and `summary` are set then."""

    run_id: str
    project_id: str
    queue_id: str
    lane: str
    lane_seq: int | None
    state: str
    result: str | None
    error: ErrorInfo | None
    dead_letter_id: str | None
    reason: str | None
    summary: str | None


class RunRest(msgspec.Struct, frozen=True, gc=False):
    """A run gives its slot back and keeps its lane: parked until `visible_at`, or blocked (None)."""

    run_id: str
    project_id: str
    queue_id: str
    state: str
    visible_at: datetime | None


class Announcement(msgspec.Struct, frozen=True, gc=False):
    topic: str
    key: str
    value: bytes


class LateAttempt(msgspec.Struct, frozen=True, gc=False):
    """An outcome that the fence refused: `fence` is the one under which the attempt ran."""

    run_id: str
    fence: int
    item: str
    attempt: int
    status: str
    value: str | None
    error: ErrorInfo | None
    key: str | None
    cost: float


class UnreadableLog(msgspec.Struct, frozen=True, gc=False):
    """A log with a record that another version has written; `seq` is its last number."""

    seq: int
    reason: str


@dataclass(slots=True)
class Batch:
    """What gathered. `hinted` are runs that a command named, `room` how many more runs may be taken, `crashes` how
    often in a row the owner or the host of a run was lost, where that changed (0: it committed an attempt since).
    """

    entries: list[Entry] = field(default_factory=list)
    ends: list[RunEnd] = field(default_factory=list)
    rests: list[RunRest] = field(default_factory=list)
    announcements: list[Announcement] = field(default_factory=list)
    mail: list[int] = field(default_factory=list)
    crashes: dict[str, int] = field(default_factory=dict)
    hinted: list[str] = field(default_factory=list)
    look_for_granted: bool = False
    room: int = 0


class Release(msgspec.Struct, frozen=True, gc=False):
    run_id: str
    in_flight: bool


class Journal(Protocol):
    def now(self) -> datetime:
        """The database's clock."""

    @property
    def lease_ends(self) -> float:
        """`time.monotonic()` at which this session may be taken for dead; nothing may run past it."""

    @property
    def renew_at(self) -> float:
        """`time.monotonic()` from which even an empty batch is worth a commit."""

    async def open(self) -> None:
        """A new session; one that was open before is given up. Raises `Unavailable`."""

    async def commit(self, batch: Batch) -> Sequence[Claim]:
        """Commit all of it and renew the lease; answer the runs that were claimed. Finds out by itself what became
        of a commit whose connection broke. Raises `SessionOver`.
        """

    async def histories(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Record] | UnreadableLog]:
        """The logs of claimed runs, for the fold."""

    async def unread_mail(self) -> Sequence[Mail]:
        """Mail of this session's runs; the batch that acts on it names it in `mail`."""

    async def keep_late(self, late: Sequence[LateAttempt]) -> None:
        """Keep outcomes that no session may commit any more. They take no number and change no run. Raises
        `Unavailable`, and `Broken` where one of them cannot be stored.
        """

    async def release(self, runs: Sequence[Release]) -> None:
        """Give runs back at a stop: granted again under the next fence. Then the session is closed."""

    async def give_up(self) -> None:
        """Say that this process lives and has forgotten its runs: they are granted again, and not blamed."""

    async def aclose(self) -> None:
        """Let go of the connection."""
