"""What a body may ask for: the closed set of requests in a turn, from step hosts and YAML alike.

`after` is set where an item was asked for in an earlier turn than the one that carries it: the first turn of a
body that came back asks again for everything that is not settled. The tags are those of the frames from step hosts.
"""

from enum import StrEnum

import msgspec

from schemas.records import ErrorInfo


class RetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """`max` counts all attempts. `base` and `cap` are seconds: uniform(0, min(base * 2^(n-1), cap))."""

    max: int = 3
    base: float = 1.0
    cap: float = 300.0
    strategy: str = "exponential-jitter"


class StepRequest(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="step"):
    """`started` says that the body's side has started attempt 1 by itself, under `token`."""

    item: str
    timeout: float
    retry: RetryPolicy = RetryPolicy()
    compensate: bool = False
    started: bool = False
    token: str | None = None
    after: int | None = None


class SleepRequest(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="sleep"):
    item: str
    seconds: float
    after: int | None = None


class TimerRequest(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="timer"):
    """A timer that the body's own event loop asked for (`wait_for`, `timeout`); ids are `~t<n>`."""

    item: str
    seconds: float
    after: int | None = None


class SkipRequest(msgspec.Struct, frozen=True, gc=False):
    """A step whose `if` was false: settled at once, without an attempt."""

    item: str
    after: int | None = None


class CancelRequest(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="cancel_item"):
    """The body gave an item up; a late outcome is recorded and not delivered."""

    target: str


Request = StepRequest | SleepRequest | TimerRequest | SkipRequest | CancelRequest


class BodyStatus(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BodyEnd(msgspec.Struct, frozen=True, gc=False):
    """How a body ended: `value` is JSON text when it succeeded, `error` is set when it failed."""

    status: BodyStatus
    value: str | None = None
    error: ErrorInfo | None = None
