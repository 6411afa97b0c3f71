"""What follows from a decision. Three classes, by their relation to the commit of its records.

In the transaction: `Park`, `Block`, `End`. After the commit: `StartBody`, `Deliver`, `RunStep`, `Arm`.
Not waiting for it: `CancelStep`, `CloseBody`, `DropBody`.
"""

from dataclasses import dataclass
from datetime import datetime

from processors.engine.moves import RunStatus
from schemas.records import ErrorInfo, Status


@dataclass(frozen=True, slots=True)
class Park:
    """The slot goes back, the lane stays: nothing is in flight until `visible_at`."""

    status: RunStatus
    visible_at: datetime


@dataclass(frozen=True, slots=True)
class Block:
    """The run cannot go on by itself; it keeps its lane."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class End:
    status: RunStatus
    value: str | None
    error: ErrorInfo | None


@dataclass(frozen=True, slots=True)
class StartBody:
    """Begin, or come back: the body plays the history of `RunState` first."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """`value` is None where the body's side has just returned that very value."""

    seq: int
    item: str
    outcome: Status
    value: str | None
    error: ErrorInfo | None
    at: datetime


@dataclass(frozen=True, slots=True)
class RunStep:
    item: str
    attempt: int
    token: str
    key: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Arm:
    """Send `Due(item)` at this time, while the run is owned."""

    item: str
    due: datetime


@dataclass(frozen=True, slots=True)
class CancelStep:
    item: str


@dataclass(frozen=True, slots=True)
class CloseBody:
    cause: str


@dataclass(frozen=True, slots=True)
class DropBody:
    pass


InTransaction = Park | Block | End
AfterCommit = StartBody | Deliver | RunStep | Arm
AtOnce = CancelStep | CloseBody | DropBody
Effect = InTransaction | AfterCommit | AtOnce
