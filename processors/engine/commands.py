"""What can happen to a run: the closed set of commands that `decide` takes.

Items are named by step id. `token` tells one attempt from another in the life of a body.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from processors.engine.requests import BodyEnd, Request
from schemas.records import ErrorInfo


@dataclass(frozen=True, slots=True)
class Claimed:
    """The executor owns the run. `owner_lost`: the owner before was lost with attempts in flight."""

    owner_lost: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """The body's answer to the delivery `after` (0: the start)."""

    after: int
    requests: Sequence[Request]
    end: BodyEnd | None


@dataclass(frozen=True, slots=True)
class Done:
    item: str
    attempt: int
    token: str
    value: str
    cost: float


@dataclass(frozen=True, slots=True)
class Failed:
    item: str
    attempt: int
    token: str
    error: ErrorInfo
    cost: float


@dataclass(frozen=True, slots=True)
class Due:
    """A timer fired in this process, or was due when the run was claimed."""

    item: str


@dataclass(frozen=True, slots=True)
class BodyLost:
    """The step host died with this run in it, or was given up. Not `suspected`: another run's doing.

    `unbegun` are items whose attempts had not begun.
    """

    reason: str
    suspected: bool = True
    unbegun: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Diverged:
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Cancel:
    """Mail: somebody wants the run to stop."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The run's time is over, whatever it is doing and however many tries are left."""

    at: datetime


Command = Claimed | Turn | Done | Failed | Due | BodyLost | Diverged | Cancel | DeadlinePassed
