"""What a step host says, as checked structures: the author's code shares its process, so nothing is taken on trust.

`read` raises WireError on a type that is not of version 1 or on a field of another type; unknown fields are ignored.
"""

from typing import Any, Literal, get_args

import msgspec

from anthares44.automation.wire import WireError
from processors.engine.requests import (
    CancelRequest,
    Request,
    RetryPolicy,
    SleepRequest,
    StepRequest,
    TimerRequest,
)
from schemas.records import ErrorInfo

CODE_LETTERS = 80
TYPE_LETTERS = 300
MESSAGE_LETTERS = 4_000


class _Struct(msgspec.Struct, gc=False):
    pass


class _Message(msgspec.Struct, gc=False, tag_field="t"):
    pass


class WireFailure(_Struct):
    """An error as it crosses. `line` may be a number beside `file`, or text that holds both."""

    code: str = "E_STEP_FAILED"
    type: str = ""
    message: str = ""
    file: str | None = None
    line: int | str | None = None
    retryable: bool = True
    retry_after: float | None = None


class Retry(msgspec.Struct, frozen=True, gc=False):
    max: int = 3
    strategy: str = "exponential-jitter"
    base: float = 1.0
    cap: float = 300.0


class Step(_Struct, tag_field="kind", tag="step"):
    item: str
    timeout: float
    retry: Retry = Retry()
    compensate: bool = False
    exclusive: bool = False
    started: bool = False
    token: str | None = None
    after: int | None = None


class Sleep(_Struct, tag_field="kind", tag="sleep"):
    item: str
    seconds: float
    after: int | None = None


class Timer(_Struct, tag_field="kind", tag="timer"):
    item: str
    seconds: float
    after: int | None = None


class CancelItem(_Struct, tag_field="kind", tag="cancel_item"):
    target: str


Wanted = Step | Sleep | Timer | CancelItem


class Ended(_Struct):
    status: Literal["succeeded", "failed", "cancelled"]
    value: str | None = None
    error: WireFailure | None = None


class Hello(_Message, tag="HELLO"):
    versions: list[int]
    language: str = "python"
    sdk: str = ""
    pid: int = 0


class Loaded(_Message, tag="LOADED"):
    workflow: str
    version: str


class LoadFailed(_Message, tag="LOAD_FAILED"):
    workflow: str
    version: str
    code: str = "E_BUNDLE_IMPORT"
    message: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None


class Turn(_Message, tag="TURN"):
    run: str
    fence: int
    after: int
    requests: list[Wanted]
    ended: Ended | None = None


class Done(_Message, tag="DONE"):
    run: str
    fence: int
    item: str
    attempt: int
    token: str
    value: str
    cost: float = 0.0
    cpu: float | None = None


class Failed(_Message, tag="FAILED"):
    run: str
    fence: int
    item: str
    attempt: int
    token: str
    error: WireFailure
    lingers: bool = False
    cost: float = 0.0
    cpu: float | None = None


class Diverged(_Message, tag="DIVERGED"):
    run: str
    fence: int
    code: str
    message: str = ""
    expected: str | None = None
    seen: str | None = None
    file: str | None = None
    line: int | None = None


class Progress(_Message, tag="PROGRESS"):
    run: str
    fence: int
    item: str


class Blocked(_Struct):
    """What holds the host's loop up; `item` is None when it is the body itself."""

    run: str
    item: str | None = None
    file: str | None = None
    line: int | None = None


class Beat(_Message, tag="BEAT"):
    lag: float = 0.0
    tokens: list[tuple[str, str, float]] = []
    blocked: Blocked | None = None
    rss: int | None = None


class Log(_Message, tag="LOG"):
    text: str
    stream: str | None = None
    level: str | None = None
    run: str | None = None
    item: str | None = None


class Credit(_Message, tag="CREDIT"):
    bytes: int


class Bye(_Message, tag="BYE"):
    reason: str = ""


Incoming = Hello | Loaded | LoadFailed | Turn | Done | Failed | Diverged | Progress | Beat | Log | Credit | Bye

_KINDS: dict[Any, type[Incoming]] = {kind.__struct_config__.tag: kind for kind in get_args(Incoming)}


def read(message: dict[str, Any]) -> Incoming:
    kind = _KINDS.get(message.get("t"))
    if kind is None:
        raise WireError(f"unknown message type {str(message.get('t'))[:40]!r}")
    try:
        return msgspec.convert(message, kind)  # by its own type: a union would be worked out anew at each call
    except msgspec.ValidationError as exc:
        raise WireError(f"{kind.__struct_config__.tag}: {exc}") from exc


def storable(text: str, limit: int) -> str:
    """Cut, and without what Postgres cannot keep as text."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text[:limit].replace("\0", "\\x00")


def place(file: str | None, line: int | str | None, column: int | None = None) -> str | None:
    """`onboard.py:12` or `onboard.py:12:5`."""
    parts = [str(part) for part in (file, line, column) if part is not None]
    return storable(":".join(parts), TYPE_LETTERS) if parts else None


def error_of(failure: WireFailure) -> ErrorInfo:
    return ErrorInfo(
        code=storable(failure.code, CODE_LETTERS),
        type=storable(failure.type, TYPE_LETTERS),
        message=storable(failure.message, MESSAGE_LETTERS),
        line=place(failure.file, failure.line),
        retryable=failure.retryable,
        retry_after=failure.retry_after,
    )


def load_error(message: LoadFailed) -> ErrorInfo:
    return ErrorInfo(
        code=storable(message.code, CODE_LETTERS),
        type="",
        message=storable(message.message, MESSAGE_LETTERS),
        line=place(message.file, message.line, message.column),
        retryable=False,
    )


def divergence(message: Diverged) -> ErrorInfo:
    text = message.message or f"expected {message.expected}, saw {message.seen}"
    return ErrorInfo(
        code=storable(message.code, CODE_LETTERS),
        type="",
        message=storable(text, MESSAGE_LETTERS),
        line=place(message.file, message.line),
        retryable=False,
    )


def request_of(wire: Wanted) -> Request:
    if isinstance(wire, Step):
        retry = wire.retry
        policy = RetryPolicy(retry.max, retry.base, retry.cap, retry.strategy)
        return StepRequest(wire.item, wire.timeout, policy, wire.compensate, wire.started, wire.token, wire.after)
    if isinstance(wire, Sleep):
        return SleepRequest(wire.item, wire.seconds, wire.after)
    if isinstance(wire, Timer):
        return TimerRequest(wire.item, wire.seconds, wire.after)
    return CancelRequest(wire.target)
