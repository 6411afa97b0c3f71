"""The record: one row of the log of a run (`a44.run.records.v1`), and the error that a row may carry.

`seq` is commit order, delivery order and undo order. `after` is the last seq that the body had seen
when it asked for the item. Values are JSON text, stored byte for byte. Times are aware UTC datetimes.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

RUN_ITEM = "~run"


class Kind(StrEnum):
    """What an item is. `RUN` rows are the run's own control records (`step_id` is `~run`)."""

    STEP = "step"
    SLEEP = "sleep"
    TIMER = "timer"
    RUN = "run"


class Status(StrEnum):
    OPENED = "opened"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    CLOSING = "closing"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    ENDED = "ended"


class ErrorInfo(msgspec.Struct, frozen=True, gc=False):
    """Why an attempt or a run failed. `retry_after` is in seconds and overrides the computed delay."""

    code: str
    type: str
    message: str
    line: str | None = None
    retryable: bool = True
    retry_after: float | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """`final` says that the item is settled: a failed attempt that is tried again is not final.

    `due` is when a timer fires or a failed attempt is tried again. `cost` is in seconds.
    """

    seq: int
    kind: Kind
    item: str
    attempt: int
    status: Status
    after: int
    final: bool
    due: datetime | None = None
    key: str | None = None
    value: str | None = None
    error: ErrorInfo | None = None
    cost: float | None = None
    recorded_at: datetime | None = None
