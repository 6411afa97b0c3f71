"""Pauses between the questions of somebody who asks again what cannot be answered now."""

import asyncio

import structlog

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

_log = structlog.get_logger("patience")


class Patience:
    """One for each question. A reason is logged as `event` with the `context` when it is not the one before."""

    def __init__(self, event: str, **context: object) -> None:
        self._event = event
        self._context = context
        self._next = FIRST_PAUSE
        self._told: str | None = None

    async def pause(self, exc: Exception) -> None:
        """After the question failed; each pause is longer than the one before."""
        reason = f"{type(exc).__name__}: {exc}"
        if reason != self._told:
            self._told = reason
            _log.warning(self._event, error=reason, **self._context)
        pause, self._next = self._next, min(2 * self._next, LONGEST_PAUSE)
        await asyncio.sleep(pause)
