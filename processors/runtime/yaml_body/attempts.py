"""Attempts of YAML steps as tasks: each tells its outcome exactly once.

Whatever an action does, the outcome is a checked result or an error: no exception leaves an attempt. One whose run has
left is cancelled, and has nothing to tell where that stopped it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from processors.ports.actions import Action, ActionCall, StepFailure
from processors.runtime.yaml_body.failures import cancelled, error_of, internal, timed_out
from schemas.errors import AutomationError
from schemas.records import ErrorInfo
from schemas.results import seal

_log = structlog.get_logger("yaml_body")

# An action keeps the step's timeout itself and says whose time ran out; this catches one that does not.
GRACE_SECONDS = 0.25


class Outcome(Protocol):
    """Told on the event loop: `result` is checked JSON text or an error, `cost` is in seconds."""

    def __call__(self, attempt: "Attempt", result: str | ErrorInfo, cost: float) -> None: ...


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt in flight. `token` tells it from others of the same item."""

    call: ActionCall
    token: str
    task: asyncio.Task[str | ErrorInfo] | None = None
    is_cancelled: bool = False
    has_left: bool = False

    def cancel(self) -> None:
        """Stop it; it tells E_CANCELLED unless it was done before."""
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()

    def leave(self) -> None:
        """Its run has left: stop it."""
        self.has_left = True
        self.cancel()


class Attempts:
    """Starts attempts and holds their tasks. `clock` is in seconds and only measures what they cost."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[str | ErrorInfo]] = set()
        self._closed = False

    def start(self, attempt: Attempt, action: Action, tell: Outcome) -> None:
        begun = self._clock()

        def done(task: asyncio.Task[str | ErrorInfo]) -> None:
            # Here and not in the coroutine: a task that is cancelled before its first step never enters it.
            self._tasks.discard(task)
            result = _cancelled(attempt) if task.cancelled() else task.result()
            if not self._closed and not (attempt.has_left and task.cancelled()):
                tell(attempt, result, self._clock() - begun)

        attempt.task = task = asyncio.get_running_loop().create_task(_outcome(attempt.call, action))
        self._tasks.add(task)
        task.add_done_callback(done)

    def mute(self) -> None:
        """From now on nothing is told."""
        self._closed = True

    async def aclose(self) -> None:
        """Wait for what was told to stop."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _cancelled(attempt: Attempt) -> ErrorInfo:
    if attempt.is_cancelled:
        return cancelled("the attempt was cancelled")
    return _defect(attempt.call, asyncio.CancelledError("nobody had cancelled the attempt"))


async def _outcome(call: ActionCall, action: Action) -> str | ErrorInfo:
    try:
        async with asyncio.timeout(call.timeout + GRACE_SECONDS) as limit:
            return seal(await action(call), f"the result of the step {call.step_id}")
    except StepFailure as exc:
        return exc.error
    except AutomationError as exc:
        return error_of(exc)
    except TimeoutError as exc:
        if limit.expired():
            return timed_out(call.timeout)
        return _defect(call, exc)
    except Exception as exc:  # noqa: BLE001 - whatever an action raises is the outcome of its attempt
        return _defect(call, exc)


def _defect(call: ActionCall, exc: BaseException) -> ErrorInfo:
    _log.error("attempt_broke", run_id=call.run_id, step_id=call.step_id, attempt=call.attempt, exc_info=exc)
    return internal(exc)
