"""What can happen to a run: the closed set of commands that `decide` takes.

Items are named by step id. `token` tells one attempt from another in the life of a body.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from processors.engine.requests import BodyEnd, Request
from schemas.records import ErrorInfo


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The executor owns the run. `owner_lost`: the owner before was lost with attempts in flight."""

    owner_lost: bool


class Turn(msgspec.Struct, frozen=True, gc=False):
    """The body's answer to the delivery `after` (0: the start)."""

    after: int
    requests: Sequence[Request]
    end: BodyEnd | None


class Done(msgspec.Struct, frozen=True, gc=False):
    item: str
    attempt: int
    token: str
    value: str
    cost: float


class Failed(msgspec.Struct, frozen=True, gc=False):
    item: str
    attempt: int
    token: str
    error: ErrorInfo
    cost: float


class Due(msgspec.Struct, frozen=True, gc=False):
    """A timer fired in this process, or was due when the run was claimed."""

    item: str


class BodyLost(msgspec.Struct, frozen=True, gc=False):
    """The step host died with this run in it, or was given up. Not `suspected`: another run's doing.

    `unbegun` are items whose attempts had not begun.
    """

    reason: str
    suspected: bool = True
    unbegun: frozenset[str] = frozenset()


class Diverged(msgspec.Struct, frozen=True, gc=False):
    error: ErrorInfo


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """Mail: somebody wants the run to stop."""

    actor: str
    reason: str


class TooOld(msgspec.Struct, frozen=True, gc=False):
    """Claimed for the first time when its event was too old for its trigger. It has no body, and gets none."""

    since: datetime


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False):
    """The run's time is over, whatever it is doing and however many tries are left."""

    at: datetime


Command = Claimed | Turn | Done | Failed | Due | BodyLost | Diverged | Cancel | TooOld | DeadlinePassed
