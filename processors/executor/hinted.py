"""Runs that commands from Kafka named. Most commands come behind the wake-up, when the run was claimed already."""

from collections.abc import Iterable
from typing import Final

CLAIMS_REMEMBERED: Final = 20_000  # more than are claimed while a command is on its way
Granted = tuple[str, int]  # a run and its fence


class Hinted:
    """The newest `most` of them; older ones are found by the next look."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: list[Granted] = []
        self._claimed: set[Granted] = set()
        self._claimed_before: set[Granted] = set()

    def add(self, grants: Iterable[Granted]) -> bool:
        """Whether one of them is news."""
        news = self._unclaimed(grants)
        self._waiting = (self._waiting + news)[-self._most :]
        return bool(news)

    def take(self, room: int) -> list[str]:
        """The oldest that wait, as many as there is room for; those that a look found meanwhile are left out."""
        waiting = self._unclaimed(self._waiting)
        self._waiting = waiting[room:]
        return [run_id for run_id, _ in waiting[:room]]

    def note_claim(self, run_id: str, fence: int) -> None:
        """The older half is forgotten at once, which makes remembering cheap."""
        self._claimed.add((run_id, fence))
        if len(self._claimed) >= CLAIMS_REMEMBERED:
            self._claimed, self._claimed_before = set(), self._claimed

    def _unclaimed(self, grants: Iterable[Granted]) -> list[Granted]:
        return [one for one in grants if one not in self._claimed and one not in self._claimed_before]

    def clear(self) -> None:
        self._waiting.clear()
