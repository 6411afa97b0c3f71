"""The log's tables in memory: what a commit changes, and whoever watches every change.

Nothing here waits and nothing can fail half-way: a transaction is applied in one go, so its rules come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from processors.ports.door import Acceptance
from processors.ports.ingest import DeadRecord
from processors.ports.journal import Entry, LateAttempt, Mail, RunEnd
from processors.ports.relay import DeadRow, OutboxRow, Topic
from processors.ports.runs import NewRun
from schemas.records import Record
from tests.simulation.virtual_time import Process

SEAL_KEY = bytes(range(32))
QueueId = tuple[str, str]
LaneId = tuple[str, str, str]
Place = tuple[str, int]  # topic, partition


@dataclass(slots=True)
class Queue:
    """`deltas` is what ended and parked since the counter was last brought up to date."""

    limit: int
    ordered: bool
    max_attempts: int
    running: int = 0
    vt: int = 0
    deltas: int = 0


@dataclass(slots=True)
class Lane:
    head: int = 0
    tail: int = 0
    vt: int = 0


@dataclass(slots=True)
class Session:
    """`holder` stands for the lock on a connection of its own that tells of a process's end, `muted` for a connection
    of that kind that broke although the process is there.
    """

    session_id: int
    owner: str
    holder: Process
    lease_until: datetime
    epoch: int = 1
    alive: bool = True
    batch: int = 0
    given_up: bool = False
    muted: bool = False

    @property
    def is_silent(self) -> bool:
        return self.muted or not self.holder.is_alive


@dataclass(slots=True)
class LiveRun:
    run: NewRun
    lane_seq: int | None
    accepted_at: datetime
    created_at: datetime
    deadline_at: datetime | None
    stale_at: datetime | None
    ready: bool
    vt: int
    state: str = "pending"
    grant_class: int = 1
    fence: int = 0
    session: int | None = None
    lost_session: int | None = None
    owner_lost: bool = False
    crashes: int = 0
    has_mail: bool = False
    granted_at: datetime | None = None
    started_at: datetime | None = None
    visible_at: datetime | None = None

    @property
    def queue(self) -> QueueId:
        return self.run.project_id, self.run.queue_id

    @property
    def lane(self) -> LaneId:
        return self.run.project_id, self.run.queue_id, self.run.lane

    @property
    def holds_slot(self) -> bool:
        return self.state == "granted" or self.session is not None


@dataclass(frozen=True, slots=True)
class EndedRun:
    live: LiveRun
    state: str
    end: RunEnd


@dataclass(slots=True)
class Key:
    event_id: str
    run_id: str | None
    body_hash: bytes
    accepted_at: datetime
    expires_at: datetime


@dataclass(slots=True)
class Progress:
    topic_id: str
    next_offset: int = 0
    seq: int = 0
    seen: int = 0


@dataclass(slots=True)
class Shard:
    xid: int = 0
    id: int = 0
    owner: str | None = None
    epoch: int = 0
    lease_until: datetime | None = None


class Watcher:
    """Hears of every change as it is applied. Raising ends the simulation."""

    def opened(self, session: Session) -> None: ...
    def closed(self, session: Session) -> None: ...
    def made(self, live: LiveRun) -> None: ...
    def granted(self, live: LiveRun) -> None: ...
    def claimed(self, live: LiveRun, session: Session) -> None: ...
    def appended(self, entry: Entry, session: int) -> None: ...
    def rested(self, live: LiveRun, session: int) -> None: ...
    def ended(self, ended: EndedRun, session: int) -> None: ...
    def announced(self, row: OutboxRow) -> None: ...
    def key_taken(self, item: Acceptance | str, event_id: str) -> None: ...
    def cursor_moved(self, shard: Shard) -> None: ...
    def went_back(self, shard: Shard) -> None: ...
    def buried(self, dead: DeadRecord) -> None: ...
    def committed(self) -> None: ...


@dataclass(slots=True)
class Tables:
    watcher: Watcher
    queues: dict[QueueId, Queue] = field(default_factory=dict)
    lanes: dict[LaneId, Lane] = field(default_factory=dict)
    sessions: dict[int, Session] = field(default_factory=dict)
    live: dict[str, LiveRun] = field(default_factory=dict)
    ended: dict[str, EndedRun] = field(default_factory=dict)
    logs: dict[str, list[Record]] = field(default_factory=dict)
    keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    windows: dict[str, float] = field(default_factory=dict)  # of projects with one of their own, in seconds
    inbox: dict[tuple[str, str], int] = field(default_factory=dict)
    progress: dict[Place, Progress] = field(default_factory=dict)
    outbox: list[OutboxRow] = field(default_factory=list)
    shard: Shard = field(default_factory=Shard)
    numbers: dict[Place, int] = field(default_factory=dict)
    highest: dict[Place, int] = field(default_factory=dict)
    checkpoints: dict[tuple[int, int], dict[Place, int]] = field(default_factory=dict)
    requests: dict[Place, int] = field(default_factory=dict)
    relay_topics: dict[str, Topic] = field(default_factory=dict)
    refused_rows: dict[str, DeadRow] = field(default_factory=dict)
    mail: dict[int, Mail] = field(default_factory=dict)
    dead_letters: dict[str, DeadRecord] = field(default_factory=dict)
    misses: set[tuple[str, str, str]] = field(default_factory=set)
    postponed: set[str] = field(default_factory=set)
    stored_bodies: set[str] = field(default_factory=set)
    late: list[LateAttempt] = field(default_factory=list)
    last_id: int = 0
    catalog: int = 1

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def announce(self, xid: int, topic: str, key: str, headers: str | None, value: bytes) -> None:
        row = OutboxRow(xid, self.next_id(), topic, key, headers, value)
        self.outbox.append(row)
        self.watcher.announced(row)

    def owned_by(self, session: int) -> list[LiveRun]:
        return [live for live in self.live.values() if live.session == session]

    def ready_in(self, queue: QueueId) -> list[LiveRun]:
        """In the order in which they get slots."""
        found = [one for one in self.live.values() if one.state == "pending" and one.ready and one.queue == queue]
        found.sort(key=lambda one: (one.grant_class, one.vt, one.run.run_id))
        return found

    def fold(self, queues: Sequence[QueueId]) -> None:
        """Brings the counters of locked queues up to date."""
        for queue in queues:
            row = self.queues[queue]
            row.running, row.deltas = row.running + row.deltas, 0
