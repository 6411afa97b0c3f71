"""Where in the author's code something happens: the line that calls, or the line that waits."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from anthares44.automation.errors import relative_to
from anthares44.automation.items import Place

_OURS = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent))


def _named(root: str, file: str) -> str:
    # Outside the bundle only the last part is told: the rest says nothing but how this machine is laid out.
    return relative_to(root, file) or Path(file).name


def calling_place(root: str) -> Place:
    """The innermost line outside the SDK and asyncio that led here."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to one's caller
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OURS):
            return _named(root, frame.f_code.co_filename), frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None, None


def waiting_place(root: str, coroutine: Coroutine[Any, Any, Any] | None) -> Place:
    """The innermost line outside the SDK and asyncio at which the coroutine is suspended."""
    found: Place = (None, None)
    inner: Any = coroutine
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is None:
            break
        if not frame.f_code.co_filename.startswith(_OURS):
            found = (_named(root, frame.f_code.co_filename), frame.f_lineno)
        inner = inner.cr_await
    return found


def defining_place(root: str, function: Any) -> Place:
    """The line at which the function starts."""
    code = function.__code__
    return _named(root, code.co_filename), code.co_firstlineno
