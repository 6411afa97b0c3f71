"""What ingest needs of the log: where to go on, and one transaction for everything a poll became."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, Protocol

from msgspec import Struct

from processors.ports.misses import FilterMiss
from processors.ports.runs import Grant, NewRun
from processors.ports.streams import Positions
from schemas.kept_records import NOTHING_KEPT, KeptRecord


class Arrival(Struct, frozen=True, gc=False):
    """One envelope of a poll, with the place where it first stood. `accepted_at` is None for a record produced
    straight to Kafka: this commit accepts it.

    Then `dead_letter_id` is used when its key turns out to have been used with another body, and `kept` is what the
    letter keeps beside `raw`. What came through a door has its key, and no need of one. `is_filtered`: every trigger
    that asks for it let it pass by.
    """

    event_id: str
    project_id: str
    idempotency_key: str
    body_hash: bytes
    accepted_at: datetime | None
    topic: str
    partition: int
    offset: int
    raw: bytes
    dead_letter_id: str | None
    kept: KeptRecord = NOTHING_KEPT
    is_filtered: bool = False


def event_of(one: Arrival | NewRun) -> tuple[str, str]:
    """Which event it is or stems from: producers choose ids of their own, and two projects may choose the same."""
    return one.project_id, one.event_id


class DeadRecord(Struct, frozen=True):
    """A record of which no run can be made, with the place where it first stood. `summary` never holds its content.

    Where one trigger refused what others may have taken, the letter says which, and has the envelope as text: that run
    can be made by a redrive. `data_ref` is where its data lies, if in storage. With `event_id` it tells what one event
    came to, and that is told once: where the event was decided before, no letter is written.
    """

    dead_letter_id: str
    project_id: str | None
    reason: str
    error_code: str
    summary: str
    raw: bytes | None
    topic: str
    partition: int
    offset: int
    workflow_id: str | None = None
    trigger_id: str | None = None
    envelope: str | None = None
    data_ref: str | None = None
    kept: KeptRecord = NOTHING_KEPT
    event_id: str | None = None


class Postponed(Struct, frozen=True):
    """A record that goes to a retry topic; `headers` is a JSON object of text. One id is written once."""

    letter_id: str
    topic: str
    partition_key: str
    headers: str
    value: bytes
    code: str


class Followed(NamedTuple):
    """The relay's numbers in a partition: all up to `seq` are here, `seen` was the last to be read."""

    seq: int = 0
    seen: int = 0


class Reached(NamedTuple):
    """How far a partition has come: the next offset, and the relay's numbers."""

    next_offset: int
    followed: Followed


class Known(NamedTuple):
    """What a direct record met, whose key or whose event was there before. With another body it is a conflict."""

    is_conflict: bool
    first_body_hash: bytes


class Committed(NamedTuple):
    """What the commit of a harvest came to. `known` is by place in its arrivals; direct records that are not in it were
    the first to use their key. `buried` are the ids of the letters that were written of its `dead`.
    """

    grants: Sequence[Grant] = ()
    known: Mapping[int, Known] = MappingProxyType({})
    buried: Collection[str] = frozenset()


@dataclass(slots=True)
class Harvest:
    """Everything that one poll of one topic, the one that was read, became. `runs` name their arrival by project and
    event id. `events` has by project and event id the arrival that says what the event makes: the first that came
    through a door, else the first of all.
    `missing` is, by partition, the first of the relay's numbers that it has to send again; `filtered` is how often a
    filter let an event pass by, `misses` those times that are kept.
    """

    topic: str
    arrivals: list[Arrival] = field(default_factory=list)
    runs: list[NewRun] = field(default_factory=list)
    dead: list[DeadRecord] = field(default_factory=list)
    postponed: list[Postponed] = field(default_factory=list)
    reached: dict[int, Reached] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    events: dict[tuple[str, str], Arrival] = field(default_factory=dict)
    filtered: int = 0
    misses: list[FilterMiss] = field(default_factory=list)


class IngestLog(Positions, Protocol):
    def now(self) -> datetime:
        """The database's clock."""

    def followed(self, topic: str) -> Mapping[int, Followed]:
        """The relay's numbers in each partition, as of the last `positions` and commits of this process."""

    def seal_key(self) -> bytes:
        """The key under which the relay seals its numbers, as of the last `positions`."""

    async def commit(self, harvest: Harvest) -> Committed:
        """Keys, runs, grants, dead letters, what is put off, offsets and what the relay has to send again, in one
        transaction.

        Raises `Unavailable`: nothing is done.
        """
