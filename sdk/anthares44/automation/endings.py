"""How a body ended, as it stands in a TURN; and the settings that one host gives all its runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anthares44.automation.codec import Codec
from anthares44.automation.errors import (
    CANCELLED,
    WORKFLOW_FAILED,
    MisuseError,
    ResultError,
    StepError,
    bounded,
    to_wire,
)
from anthares44.automation.wire import Message


@dataclass(slots=True)
class Settings:
    """`root` is the folder of the bundle, `items` the most a run may request, `emit` sends a line of the log, `loop` is
    the one in whose callbacks bodies are played.
    """

    codec: Codec
    items: int
    root: str
    emit: Callable[[Message], None]
    loop: asyncio.AbstractEventLoop | None = None


def ending_of(main: asyncio.Task[Any], settings: Settings, *, closing: bool) -> dict[str, Any]:
    if closing:
        return {"status": "cancelled"}
    if main.cancelled():
        return _failed(asyncio.CancelledError("the body was cancelled from inside"), settings, CANCELLED)
    error = main.exception()
    if error is not None:
        return _failed(error, settings, WORKFLOW_FAILED)
    try:
        return {"status": "succeeded", "value": settings.codec.encode(main.result())}
    except BaseException as fault:  # noqa: BLE001 - to write it may call code of the author's, which may raise anything
        return _failed(fault, settings, WORKFLOW_FAILED)


def _failed(error: BaseException, settings: Settings, code: str) -> dict[str, Any]:
    first, others = _first_of(error), _count(error) - 1
    wire = to_wire(first, settings.root, code=code)
    if not isinstance(first, StepError | ResultError | MisuseError) and wire["code"] == "E_STEP_FAILED":
        wire["code"] = code  # the body's own PermanentError: no step has failed
    if others:
        wire["message"] = bounded(f"{wire['message']} (and {others} more)")
    wire["retryable"] = False
    return {"status": "failed", "error": wire}


def _first_of(error: BaseException) -> BaseException:
    """What a TaskGroup wraps says more than the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _count(error: BaseException) -> int:
    if isinstance(error, BaseExceptionGroup):
        return sum(map(_count, error.exceptions))
    return 1
