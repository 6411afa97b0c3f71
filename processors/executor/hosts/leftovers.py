"""Attempts that are over for the run while their code may still be running: a thread cannot be stopped.

The next attempt of such an item is held back until a heartbeat no longer names the item, or the host is gone.
A host that still names it at its deadline has to go.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Generic, TypeVar

from processors.executor.hosts.held import Launch

Owner = TypeVar("Owner")


@dataclass(slots=True)
class _Leftover(Generic[Owner]):
    owner: Owner
    deadline: float
    held: Launch | None = None


class Leftovers(Generic[Owner]):
    """`Owner` is the host that runs the code. Keys are (run id, item): they outlive the fence."""

    def __init__(self, release: Callable[[Launch], None]) -> None:
        self._release = release
        self._known: dict[tuple[str, str], _Leftover[Owner]] = {}

    def add(self, owner: Owner, run_id: str, item: str, deadline: float) -> None:
        self._known.setdefault((run_id, item), _Leftover(owner, deadline))

    def hold(self, launch: Launch) -> bool:
        """Keep the launch until the item's code has ended. False: nothing is left over, go on."""
        if not self._known:
            return False
        found = self._known.get((launch.run.run_id, launch.attempt.item))
        if found is None:
            return False
        found.held = launch
        return True

    def take_held(self, run_id: str, item: str) -> Launch | None:
        """Give a held launch back: it is not to happen."""
        found = self._known.get((run_id, item))
        if found is None:
            return None
        launch, found.held = found.held, None
        return launch

    def heard(self, owner: Owner, running: Container[tuple[str, str]]) -> None:
        """A heartbeat of the host names all that it runs."""
        if self._known:
            self._end([key for key, one in self._known.items() if one.owner is owner and key not in running])

    def owner_gone(self, owner: Owner) -> None:
        self._end([key for key, one in self._known.items() if one.owner is owner])

    def overdue(self, now: float) -> list[tuple[Owner, str, str]]:
        """(host, run id, item) of those past their deadline."""
        return [(one.owner, *key) for key, one in self._known.items() if one.deadline <= now]

    def _end(self, keys: list[tuple[str, str]]) -> None:
        ended = [self._known.pop(key) for key in keys]
        for leftover in ended:
            if leftover.held is not None:
                self._release(leftover.held)
