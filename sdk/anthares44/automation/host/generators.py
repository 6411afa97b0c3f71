"""Asynchronous generators that are let go before their end: each is closed by the loop in which it began.

A generator keeps the finalizer that is set when it is first iterated, and Python tells of that right afterwards. So
every generator gets a finalizer of its own, which learns its loop then; to set one around each turn of a body would
cost more than many a turn.
"""

import sys
from asyncio.events import _get_running_loop
from collections.abc import AsyncGenerator, Callable
from typing import Any

from anthares44.automation.loop import RunLoop

_Generator = AsyncGenerator[Any, Any]


class _Finalizer:
    __slots__ = ("close",)

    def __init__(self) -> None:
        self.close: Callable[[_Generator], object] | None = None

    def __call__(self, generator: _Generator) -> None:
        if self.close:
            self.close(generator)


def watch_generators() -> None:
    """For this thread, as long as its loop runs. Call it from a callback: a loop sets hooks of its own as it starts."""
    outer = sys.get_asyncgen_hooks()
    given = _Finalizer()

    def begins(generator: _Generator) -> None:
        nonlocal given
        loop = _get_running_loop()
        if isinstance(loop, RunLoop):
            given.close = loop.close_generator
        else:
            given.close = outer.finalizer
            if outer.firstiter:
                outer.firstiter(generator)
        given = _Finalizer()
        sys.set_asyncgen_hooks(finalizer=given)

    sys.set_asyncgen_hooks(begins, given)
