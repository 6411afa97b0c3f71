"""What the relay needs of the log: a lease on its shard, rows in order of commit, a cursor with its numbers.

All methods raise `Unavailable` when Postgres is away; then it is not known whether a change was made,
and the shard has to be taken again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import msgspec

# How many rows are published before the cursor is kept: no number is further above the one kept in its partition.
BATCH: Final = 1_000


class Cursor(NamedTuple):
    """Everything up to here, in order of (xid, id), is published."""

    xid: int
    id: int


class Outlook(NamedTuple):
    """What waits: for how long the oldest open transaction of our writers has been open, about how many rows lie
    behind the cursor, and how long the first of them has.
    """

    horizon_age: float = 0.0
    lag_rows: int = 0
    oldest_unsent: float = 0.0


class Hold(NamedTuple):
    """The shard is ours in this epoch. In the topics `asked` ingest misses numbers: go back. To those that are `held`
    nothing more is published, because they are about to get more partitions.
    """

    epoch: int
    cursor: Cursor
    asked: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    outlook: Outlook = Outlook()


class OutboxRow(msgspec.Struct, gc=False):
    """`headers` is a JSON object of text by name, or None."""

    xid: int
    id: int
    topic: str
    partition_key: str
    headers: str | None
    value: bytes


class Topic(NamedTuple):
    """A topic as it was published to; one made again has another id. `partitions` is None where nobody noted it."""

    topic_id: str
    partitions: int | None


class DeadRow(NamedTuple):
    """A row that the broker will never take."""

    row: OutboxRow
    dead_letter_id: str
    error_code: str
    summary: str


class Unread(NamedTuple):
    """Numbers up to `given` were given in a partition, ingest has those up to `seq` and goes on at `next_offset`."""

    given: int
    seq: int
    next_offset: int


Numbers = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a published batch changes. `topics` are those that were used for the first time as they are."""

    cursor: Cursor
    numbers: Numbers
    topics: Mapping[str, Topic] = field(default_factory=dict)
    dead: Sequence[DeadRow] = ()


class RelayStore(Protocol):
    async def take(self, owner: str) -> Hold | None:
        """Become the owner in a new epoch; None while another one's lease runs."""

    async def renew(self, epoch: int) -> Hold | None:
        """Lengthen the lease and keep a checkpoint of cursor and numbers; None when it was lost."""

    async def waits(self, cursor: Cursor) -> bool:
        """Whether any row that is committed lies behind the cursor."""

    async def upper(self) -> int:
        """The first transaction that had not begun to write."""

    async def horizon(self, upper: int) -> int:
        """The oldest transaction of our writers below `upper` that may still commit, else `upper`.

        Ask after `upper` and before `rows`, each in its own snapshot: what ended in between is then visible.
        """

    async def rows(self, cursor: Cursor, horizon: int, limit: int) -> list[OutboxRow]:
        """The next rows behind the cursor whose transaction is older than the horizon."""

    async def seal_key(self) -> bytes:
        """The key under which numbers are sealed, of this log."""

    async def numbers(self) -> dict[tuple[str, int], int]:
        """The last number given in each (topic, partition)."""

    async def topics(self) -> dict[str, Topic]:
        """The topics that were published to."""

    async def is_read_up(self, topic: str) -> bool:
        """Whether ingest has every number that was given in this topic; true of a topic that it does not read."""

    async def unread(self) -> dict[tuple[str, int], Unread]:
        """The partitions in which ingest lacks numbers, of the topics that it reads."""

    async def go_back(self, epoch: int, topics: Collection[str]) -> bool:
        """Put the cursor, never forward, to where everything that these topics miss goes out again; take the shard
        anew then. Requests for these topics are answered by it. False when the epoch is over.

        Where only ingest reads them: to the newest checkpoint whose numbers it has, and to the numbers of then, so
        that the same rows get the same ones. Else as far as consumers surely remember; in a topic that ingest reads
        the numbers then go on from what it has, in others from where they are.
        """

    async def advance(self, epoch: int, progress: Progress) -> bool:
        """Keep all of it in one commit; False when the epoch is over, nothing changed then."""

    async def release(self, epoch: int) -> None:
        """Give the lease back."""

    async def wait_for_wake(self) -> None:
        """Return once there may be new rows; a slow poll must do without it."""

    @property
    def lease(self) -> float:
        """How long a lease lasts, in seconds."""
