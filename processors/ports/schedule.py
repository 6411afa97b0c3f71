"""What the scheduler needs of the log: look once a second, act where there is something to do."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from processors.ports.runs import Grant
from schemas.stored_bodies import Reference


@dataclass(frozen=True, slots=True)
class Silent:
    """A session whose process seems gone, and how many batches it had committed when that was seen."""

    session_id: int
    batch: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """`next_due` is in seconds from now; None where no timer waits. `silent` is empty while nothing can be said: just
    after Postgres or this connection to it was started, everybody is still on the way back.
    `redrives`: dead letters wait for their turn to run again.
    """

    timers_due: bool
    sessions_late: bool
    runs_hungry: bool
    next_due: float | None
    silent: Sequence[Silent] = ()
    redrives: bool = False


class Schedule(Protocol):
    """Everything raises `Unavailable` when Postgres is away; every call may be repeated by any number of schedulers."""

    async def look(self) -> Outlook:
        """One cheap question."""

    async def wake_due(self) -> int:
        """Runs whose timer is due want their slot back; answers how many."""

    async def reap(self, dead: Sequence[Silent] = ()) -> Sequence[Grant]:
        """Close sessions whose lease has passed, and those that are still silent and have committed nothing since, and
        grant their runs again under the next fence.
        """

    async def feed(self) -> Sequence[Grant]:
        """Give free slots to ready runs; those whose deadline has passed need none, as all that they do is end."""

    async def kept_bodies(self, references: Sequence[Reference]) -> Collection[Reference]:
        """Those of these bodies in storage that a run refers to, live or ended."""

    async def recount(self) -> None:
        """Repair the counters of queues."""

    async def sweep(self) -> None:
        """Bounded upkeep: old keys, seen events, empty lanes, ended sessions, orphaned mail, partitions ahead."""
