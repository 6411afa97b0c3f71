"""What the relay needs of the log: a lease on its shard, rows in order of commit, a cursor with its numbers.

All methods raise `Unavailable` when Postgres is away; then it is not known whether a change was made,
and the shard has to be taken again.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec


class Cursor(NamedTuple):
    """Everything up to here, in order of (xid, id), is published."""

    xid: int
    id: int


class Hold(NamedTuple):
    """The shard is ours in this epoch. No row of a transaction from `upper` on was looked for."""

    epoch: int
    cursor: Cursor
    upper: int


class OutboxRow(msgspec.Struct, gc=False):
    """`headers` is a JSON object of text by name, or None."""

    xid: int
    id: int
    topic: str
    partition_key: str
    headers: str | None
    value: bytes


Numbers = Mapping[tuple[str, int], int]


class RelayStore(Protocol):
    async def take(self, owner: str) -> Hold | None:
        """Become the owner in a new epoch; None while another one's lease runs."""

    async def renew(self, epoch: int) -> Hold | None:
        """Lengthen the lease; None when it was lost."""

    async def upper(self) -> int:
        """The first transaction that had not begun to write."""

    async def horizon(self, upper: int) -> int:
        """The oldest transaction of our writers below `upper` that may still commit, else `upper`.

        Ask after `upper` and before `rows`, each in its own snapshot: what ended in between is then visible.
        """

    async def rows(self, cursor: Cursor, horizon: int, limit: int) -> list[OutboxRow]:
        """The next rows behind the cursor whose transaction is older than the horizon."""

    async def numbers(self) -> dict[tuple[str, int], int]:
        """The last number given in each (topic, partition)."""

    async def topic_ids(self) -> dict[str, set[str]]:
        """The ids of the topics that records were read from, by topic."""

    async def rewind(self) -> None:
        """Put the cursor back behind what consumers surely remember; never forward. Take the shard anew then."""

    async def advance(self, epoch: int, cursor: Cursor, numbers: Numbers) -> bool:
        """Keep cursor and numbers in one commit; False when the epoch is over, nothing changed then."""

    async def release(self, epoch: int) -> None:
        """Give the lease back."""

    async def wait_for_wake(self) -> None:
        """Return once there may be new rows; a slow poll must do without it."""

    @property
    def lease(self) -> float:
        """How long a lease lasts, in seconds."""
