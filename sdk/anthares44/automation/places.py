"""Where in the author's code something happens: the line that calls, or the line that waits."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

from anthares44.automation.errors import relative_to
from anthares44.automation.items import Place

_OURS = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent))


def _named(root: str, file: str) -> str:
    # Outside the bundle only the last part is told: the rest says nothing but how this machine is laid out.
    return relative_to(root, file) or Path(file).name


def calling_place(root: str) -> Place:
    """The innermost line of the bundle that led here; without one, the innermost outside the SDK and asyncio."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to one's caller
    nearest: Place = (None, None)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            if file.startswith(root):
                return _named(root, file), frame.f_lineno
            if nearest[0] is None:
                nearest = (_named(root, file), frame.f_lineno)
        frame = frame.f_back
    return nearest


def waiting_place(root: str, coroutine: Coroutine[Any, Any, Any] | None) -> Place:
    """The innermost line of the bundle at which the coroutine is suspended; without one, as for a call."""
    found: Place = (None, None)
    inside = False
    inner: Any = coroutine
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is None:
            break
        file = frame.f_code.co_filename
        if file.startswith(root) or not (inside or file.startswith(_OURS)):
            inside = file.startswith(root)
            found = (_named(root, file), frame.f_lineno)
        inner = inner.cr_await
    return found


def defining_place(root: str, function: Any) -> Place:
    """The line at which the function starts."""
    code = function.__code__
    return _named(root, code.co_filename), code.co_firstlineno
