"""What a step host says, as checked structures: the author's code shares its process, so nothing is taken on trust.

A type that is not of version 1, or a field of another type, is a fault of the host; unknown fields are ignored.
"""

import json
from typing import Any, Literal, get_args

import msgspec

from anthares44.automation.wire import WireError
from processors.engine.requests import CancelRequest, SleepRequest, StepRequest, TimerRequest
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


Wanted = StepRequest | SleepRequest | TimerRequest | CancelRequest  # as the engine takes them


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


class Chunk(_Message, tag="CHUNK"):
    """A piece of a message that is too long for one frame."""

    id: int
    n: int
    data: str
    last: bool = False


Incoming = Hello | Loaded | LoadFailed | Turn | Done | Failed | Diverged | Progress | Beat | Log | Credit | Bye | Chunk

_decode = msgspec.json.Decoder(list[Incoming]).decode
KINDS: dict[Any, type[Incoming]] = {kind.__struct_config__.tag: kind for kind in get_args(Incoming)}


def read_frame(payload: bytes) -> tuple[list[Incoming], WireError | None]:
    """The messages of a frame, up to the first that is not of the format."""
    try:
        return _decode(payload), None
    except msgspec.DecodeError:
        return _read_apart(payload)


def _read_apart(payload: bytes) -> tuple[list[Incoming], WireError | None]:
    """The slow way, which finds the fault, and takes a lone surrogate written as an escape."""
    messages: list[Incoming] = []
    try:
        plain = json.loads(payload)
        if not isinstance(plain, list):
            return [], WireError(f"a frame must hold an array of messages, not {type(plain).__name__}")
        messages.extend(map(read, plain))
    except ValueError as exc:
        return [], WireError(f"a frame that is not JSON: {exc}")
    except WireError as exc:
        return messages, exc
    return messages, None


def read(message: Any) -> Incoming:
    """One message, from what JSON made of it. Raises WireError."""
    name = message.get("t") if isinstance(message, dict) else None
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise WireError(f"unknown message type in {str(message)[:80]!r}")
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
