"""Waiting for something outside this process that offers no signal: asked often, with a deadline."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

INTERVAL_SECONDS = 0.02


async def until(question: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 20.0) -> None:
    """Return once the answer is yes; fail with `what` when the time is over."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                answer = question()
                if await answer if inspect.isawaitable(answer) else answer:
                    return
                await asyncio.sleep(INTERVAL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:.0f} s: {what}") from None
