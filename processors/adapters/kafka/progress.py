"""Notices a partition that stands still although there is something to read in it.

A partition is excused for the time that the handler has a poll in its hands or waits for Postgres; where the
handler is never idle, by too few polls. Pure: times are arguments, in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# A partition that has something to read is in one of the next polls: each poll takes what was fetched the longest ago.
ENOUGH_POLLS: Final = 20
# Between two looks no more is counted than so many times what is usual: who slept did not stand still.
MOST_INTERVALS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Stalled:
    """`position` is -1 where fetching never had one."""

    partition: int
    position: int
    end: int
    seconds: float


@dataclass(slots=True)
class _Standing:
    position: int
    seconds: float = 0.0
    idle: float = 0.0
    polls: int = 0


class Progress:
    """`limit` is how long a partition may stand still, `interval` how often somebody looks."""

    def __init__(self, limit: float, interval: float, now: float) -> None:
        self._limit = limit
        self._most = interval * MOST_INTERVALS
        self._standing: dict[int, _Standing] = {}
        self._looked_at = now
        self._busy = 0.0
        self._busy_since: float | None = None
        self._polls = 0

    def handler_begins(self, now: float) -> None:
        self._busy_since = now

    def handler_ends(self, now: float) -> None:
        self._note_busy(now)
        self._busy_since = None
        self._polls += 1

    def begin_anew(self, now: float) -> None:
        """Nothing could be known since the last look, so nobody is to blame for it."""
        self._standing.clear()
        self._since_last_look(now)

    def look(self, positions: Mapping[int, int], ends: Mapping[int, int], now: float) -> list[Stalled]:
        """The partitions that stand still. `positions` are those of all partitions that are read here."""
        seconds, idle, polls = self._since_last_look(now)
        before, self._standing = self._standing, {}
        stalled = []
        for partition, position in positions.items():
            end = ends.get(partition, 0)
            if end <= position:
                continue
            one = before.get(partition)
            if one is None or one.position != position:
                self._standing[partition] = _Standing(position)
                continue
            self._standing[partition] = one
            one.seconds += seconds
            one.idle += idle
            one.polls += polls
            if one.idle >= self._limit or (one.seconds >= self._limit and one.polls >= ENOUGH_POLLS):
                stalled.append(Stalled(partition, position, end, one.seconds))
        return stalled

    def _since_last_look(self, now: float) -> tuple[float, float, int]:
        """Seconds, those of them in which the handler was idle, and how many polls it has done."""
        self._note_busy(now)
        seconds = min(now - self._looked_at, self._most)
        told = seconds, max(seconds - self._busy, 0.0), self._polls
        self._looked_at, self._busy, self._polls = now, 0.0, 0
        return told

    def _note_busy(self, now: float) -> None:
        if self._busy_since is not None:
            self._busy += now - self._busy_since
            self._busy_since = now
