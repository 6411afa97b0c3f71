"""The errors of a workflow's code: what authors raise, what they catch, and how an error crosses frames.

An error crosses as code, type, message (without what looks like a secret), file, line and retry class, never as a
pickled object. Any exception of a step is retryable unless it says otherwise.
"""

import re
import traceback
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from anthares44.automation.redacted_text import without_secrets

MESSAGE_BYTES = 2048
_TYPE_BYTES = 256
_LOOKED_AT = 2 * MESSAGE_BYTES  # characters: what stands behind them would not be kept

STEP_FAILED = "E_STEP_FAILED"
STEP_MEMORY = "E_STEP_MEMORY"
STEP_TIMEOUT = "E_STEP_TIMEOUT"
STEP_INSIDE_STEP = "E_STEP_INSIDE_STEP"
RESULT_NOT_JSON = "E_RESULT_NOT_JSON"
RESULT_TOO_LARGE = "E_RESULT_TOO_LARGE"
CANCELLED = "E_CANCELLED"
WORKFLOW_FAILED = "E_WORKFLOW_FAILED"


class StepError(Exception):
    """Raised in the body at the await of a step that is out of tries.

    `code` is stable (`E_...`), `type` the class name of what the step raised, `step` the step's id.
    """

    def __init__(self, message: str, *, code: str = STEP_FAILED, kind: str = "", step: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.type = kind
        self.message = message
        self.step = step


class StepTimeout(StepError):
    """A step ran past its timeout in each of its tries."""


class PermanentError(Exception):
    """Raise it in a step when another try cannot help; `code` replaces E_STEP_FAILED."""

    def __init__(self, message: str = "", *, code: str = STEP_FAILED) -> None:
        super().__init__(message)
        self.code = code


class RetryableError(Exception):
    """Raise it in a step to say when the next try is worth it: `retry_after` seconds from now."""

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float | None = None,
        code: str = STEP_FAILED,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class ResultError(PermanentError):
    """A value cannot be stored as JSON without change, or is too large."""


class MisuseError(PermanentError):
    """The SDK was called where it cannot work, such as a step inside a step."""


class BlockedRun(BaseException):
    """The body cannot go on until its code is mended. Unwinds it: no `except Exception` may keep it."""


def storable(text: str) -> str:
    """The text without what Postgres and UTF-8 refuse (NUL, lone surrogates), shown as escapes."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def bounded(text: str, limit: int = MESSAGE_BYTES) -> str:
    """The text cut to at most `limit` bytes of UTF-8, marked with an ellipsis where it was cut."""
    data = storable(text).encode()
    if len(data) <= limit:
        return data.decode()
    mark = "…"
    return data[: limit - len(mark.encode())].decode(errors="ignore") + mark


def message_of(error: BaseException) -> str:
    try:
        return bounded(without_secrets(str(error)[:_LOOKED_AT]))
    except BaseException as fault:  # noqa: BLE001 - a broken __str__ of the author must not lose the failure
        return f"(no text: {type(fault).__name__} while reading the error)"


def shown(value: object) -> str:
    """The value as Python shows it, by its type alone where it does not let itself be shown."""
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 - a broken __repr__ of the author must not lose the failure
        return f"<{type(value).__qualname__}>"


def type_of(error: BaseException) -> str:
    kind = type(error)
    plain = kind.__module__ in ("builtins", __name__)
    name = kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"
    return bounded(name, _TYPE_BYTES)


def place_of(error: BaseException, root: str) -> tuple[str | None, int | None]:
    """File (relative to the bundle) and line of the author's code that is nearest to the error."""
    found: tuple[str | None, int | None] = (None, None)
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = relative_to(root, frame.f_code.co_filename)
        if file is not None:
            found = (file, line)
    return found


@lru_cache(maxsize=1024)
def relative_to(root: str, file: str) -> str | None:
    """The file's path inside the bundle, or None when it is outside."""
    path = PurePath(file)
    return path.relative_to(root).as_posix() if root and path.is_relative_to(root) else None


def to_wire(error: BaseException, root: str, *, code: str = STEP_FAILED) -> dict[str, Any]:
    """The error as it crosses frames; `code` serves errors that have none of their own."""
    file, line = place_of(error, root)
    kind = _told(error, "type") if isinstance(error, StepError) else None
    return {
        "code": _code_of(error) or code,
        "type": kind if _is_text(kind) else type_of(error),
        "message": message_of(error),
        "file": file,
        "line": line,
        "retryable": not isinstance(error, PermanentError),
        "retry_after": _retry_after_of(error),
    }


# What authors put into their errors is not trusted: the frame has to be readable whatever it is.
_CODE = re.compile(r"E_[A-Z0-9_]{1,78}", re.ASCII)
_LONGEST_WAIT = 366 * 86400.0


def _told(error: BaseException, name: str) -> Any:
    """What the error says of itself, where it can: authors may have made a property of it."""
    try:
        return getattr(error, name)
    except BaseException:  # noqa: BLE001 - whatever goes wrong there, the failure itself is told
        return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _TYPE_BYTES and value.isprintable()


def _code_of(error: BaseException) -> str | None:
    own = _told(error, "code") if isinstance(error, StepError | PermanentError | RetryableError) else None
    return own if isinstance(own, str) and _CODE.fullmatch(own) else None


def _retry_after_of(error: BaseException) -> float | None:
    wait = _told(error, "retry_after") if isinstance(error, RetryableError) else None
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not wait >= 0:
        return None
    return float(min(wait, _LONGEST_WAIT))


def from_wire(error: dict[str, Any], step: str) -> StepError:
    """What the body gets at its await."""
    code = str(error.get("code") or STEP_FAILED)
    kind = StepTimeout if code == STEP_TIMEOUT else StepError
    return kind(str(error.get("message") or code), code=code, kind=str(error.get("type") or ""), step=step)
