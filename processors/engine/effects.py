"""What follows from a decision. Three classes, by their relation to the commit of its records.

In the transaction: `Park`, `Block`, `End`. After the commit: `StartBody`, `Deliver`, `RunStep`, `Arm`.
Not waiting for it: `CancelStep`, `CloseBody`, `DropBody`.
"""

from datetime import datetime

import msgspec

from processors.engine.moves import RunStatus
from schemas.records import ErrorInfo, Status


class Park(msgspec.Struct, frozen=True, gc=False):
    """The slot goes back, the lane stays: nothing is in flight until `visible_at`."""

    status: RunStatus
    visible_at: datetime


class Block(msgspec.Struct, frozen=True, gc=False):
    """The run cannot go on by itself; it keeps its lane."""

    error: ErrorInfo


class End(msgspec.Struct, frozen=True, gc=False):
    status: RunStatus
    value: str | None
    error: ErrorInfo | None


class StartBody(msgspec.Struct, frozen=True, gc=False):
    """Begin, or come back: the body plays the history of `RunState` first."""


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """`value` is None where the body's side has just returned that very value."""

    seq: int
    item: str
    outcome: Status
    value: str | None
    error: ErrorInfo | None
    at: datetime


class RunStep(msgspec.Struct, frozen=True, gc=False):
    item: str
    attempt: int
    token: str
    key: str
    timeout: float


class Arm(msgspec.Struct, frozen=True, gc=False):
    """Send `Due(item)` at this time, while the run is owned."""

    item: str
    due: datetime


class CancelStep(msgspec.Struct, frozen=True, gc=False):
    item: str


class CloseBody(msgspec.Struct, frozen=True, gc=False):
    cause: str


class DropBody(msgspec.Struct, frozen=True, gc=False):
    pass


InTransaction = Park | Block | End
AfterCommit = StartBody | Deliver | RunStep | Arm
AtOnce = CancelStep | CloseBody | DropBody
Effect = InTransaction | AfterCommit | AtOnce
