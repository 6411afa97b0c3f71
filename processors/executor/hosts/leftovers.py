"""Attempts that are over for the run while their code may still be running: a thread cannot be stopped.

The next attempt of such an item is held back until a heartbeat no longer names the item, or the host is gone. An
attempt whose run was dropped owes its outcome, once: until it comes, heartbeats do not count, which may overtake it.
A host in which one is past its deadline has to go.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Generic, TypeVar

from processors.executor.hosts.held import Attempt, Launch

Owner = TypeVar("Owner")


@dataclass(slots=True)
class _Leftover(Generic[Owner]):
    """`owed`: fence, number and token of the attempt whose outcome is still to come."""

    owner: Owner
    deadline: float
    owed: tuple[int, int, str] | None = None
    held: Launch | None = None


class Leftovers(Generic[Owner]):
    """`Owner` is the host that runs the code. Keys are (run id, item): they outlive the fence."""

    def __init__(self, release: Callable[[Launch], None]) -> None:
        self._release = release
        self._known: dict[tuple[str, str], _Leftover[Owner]] = {}

    def add(self, owner: Owner, run_id: str, item: str, deadline: float) -> None:
        """Its outcome was told."""
        self._known.setdefault((run_id, item), _Leftover(owner, deadline))

    def add_owing(self, owner: Owner, run_id: str, fence: int, attempt: Attempt) -> None:
        """Its run was dropped."""
        owed = (fence, attempt.number, attempt.token)
        self._known.setdefault((run_id, attempt.item), _Leftover(owner, attempt.deadline, owed))

    def settle(self, owner: Owner, run_id: str, item: str, attempt: tuple[int, int, str]) -> bool:
        """The outcome of an attempt (fence, number, token) came. Whether it was owed."""
        found = self._known.get((run_id, item))
        if found is None or found.owner is not owner or found.owed != attempt:
            return False
        self._end([(run_id, item)])
        return True

    def runs_in(self, owner: Owner) -> set[str]:
        return {run_id for (run_id, _), one in self._known.items() if one.owner is owner}

    def owes(self, owner: Owner) -> bool:
        return any(one.owner is owner and one.owed is not None for one in self._known.values())

    def hold(self, launch: Launch) -> bool:
        """Keep the launch until the item's code has ended. False: nothing is left over, go on."""
        if not self._known:
            return False
        found = self._known.get((launch.run.run_id, launch.attempt.item))
        if found is None:
            return False
        found.held = launch
        return True

    def heard(self, owner: Owner, running: Container[tuple[str, str]]) -> None:
        """A heartbeat of the host names all that it runs."""
        if self._known:
            known = self._known.items()
            self._end([key for key, one in known if one.owner is owner and not one.owed and key not in running])

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
