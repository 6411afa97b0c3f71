"""The states of a run and every legal move between them: one table for code, database check and diagram.

`step` raises on an illegal move and names state and move. `docs/engine.md` is drawn from this table.
"""

from collections.abc import Mapping
from enum import StrEnum


class RunStatus(StrEnum):
    PENDING = "pending"
    GRANTED = "granted"
    RUNNING = "running"
    SLEEPING = "sleeping"
    RETRYING = "retrying"
    WAITING = "waiting"
    COMPENSATING = "compensating"
    AWAITING_CONFIRMATION = "awaiting_confirmation"
    BLOCKED = "blocked"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset(
    {
        RunStatus.SUCCEEDED,
        RunStatus.FAILED,
        RunStatus.COMPENSATED,
        RunStatus.COMPENSATION_FAILED,
        RunStatus.CANCELLED,
    }
)


class Move(StrEnum):
    GRANT = "grant"
    CLAIM = "claim"
    REGRANT = "owner lost"
    WAKE = "due or mail"
    SLEEP = "only timers left"
    RETRY = "only retries and timers left"
    BLOCK = "diverged"
    UNBLOCK = "operator or new version"
    SUCCEED = "body returned"
    FAIL = "body ended in error"
    CANCEL = "cancelled or past its deadline"


MOVES: Mapping[RunStatus, Mapping[Move, RunStatus]] = {
    RunStatus.PENDING: {Move.GRANT: RunStatus.GRANTED},
    RunStatus.GRANTED: {Move.CLAIM: RunStatus.RUNNING},
    RunStatus.RUNNING: {
        Move.REGRANT: RunStatus.GRANTED,
        Move.SLEEP: RunStatus.SLEEPING,
        Move.RETRY: RunStatus.RETRYING,
        Move.BLOCK: RunStatus.BLOCKED,
        Move.SUCCEED: RunStatus.SUCCEEDED,
        Move.FAIL: RunStatus.FAILED,
        Move.CANCEL: RunStatus.CANCELLED,
    },
    RunStatus.SLEEPING: {Move.WAKE: RunStatus.PENDING},
    RunStatus.RETRYING: {Move.WAKE: RunStatus.PENDING},
    RunStatus.WAITING: {Move.WAKE: RunStatus.PENDING},
    RunStatus.BLOCKED: {Move.UNBLOCK: RunStatus.PENDING, Move.WAKE: RunStatus.PENDING},
    RunStatus.COMPENSATING: {},
    RunStatus.AWAITING_CONFIRMATION: {},
    **{status: {} for status in TERMINAL},
}


class IllegalMove(Exception):
    """A defect: the state does not allow this move."""


def step(status: RunStatus, move: Move) -> RunStatus:
    """The state after a move."""
    after = MOVES[status].get(move)
    if after is None:
        raise IllegalMove(f"a run that is {status} cannot take the move {move.name}")
    return after
