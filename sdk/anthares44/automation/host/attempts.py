"""Running step functions: coroutines on the loop, everything else in threads.

An attempt has its timeout, and reports exactly once how it ended, also when its run has left meanwhile. Whoever stops
it cancels a coroutine; a thread cannot be stopped. Only the timeout of a thread is reported before its end: the attempt
then lingers, without another word, until the function returns.
"""

import asyncio
import functools
import inspect
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass, field
from types import CodeType, TracebackType
from typing import Any

from anthares44.automation.context import ATTEMPT
from anthares44.automation.endings import Settings
from anthares44.automation.errors import CANCELLED, STEP_MEMORY, STEP_TIMEOUT, to_wire
from anthares44.automation.items import Item
from anthares44.automation.turns import Run

THREADS = 32
TIMED_OUT, STOPPED, DROPPED = "timed out", "stopped", "dropped"


@dataclass(slots=True, eq=False)
class Attempt:
    run: Run
    item: Item
    number: int
    token: str
    key: str
    timeout: float
    fn: Callable[[], Any]
    begun: float | None = None
    cpu: float = 0.0
    round_began: float | None = None
    stop: str | None = None
    reported: bool = False
    task: asyncio.Task[None] | None = None
    thread: "Future[None] | None" = None
    timer: asyncio.TimerHandle | None = None
    _draws: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def item_id(self) -> str:
        return self.item.id

    def next_draw(self) -> int:
        return next(self._draws)

    def spent(self) -> tuple[float, float]:
        """Seconds since it began, and those of work in the thread or on the loop; in the middle of a round, so far."""
        if self.begun is None:
            return 0.0, 0.0
        now = time.monotonic()
        return now - self.begun, self.cpu if self.round_began is None else self.cpu + now - self.round_began

    def beat(self, now: float) -> list[Any]:
        age = 0.0 if self.begun is None else now - self.begun
        return [self.run.run_id, self.item.id, round(age, 6)]


class StepRunner:
    """Starts attempts and says how each ended: `done(attempt, text)` or `failed(attempt, error, lingers)`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        done: Callable[[Attempt, str], None],
        failed: Callable[[Attempt, dict[str, Any], bool], None],
    ) -> None:
        self.running: dict[str, Attempt] = {}
        self._loop = loop
        self._settings = settings
        self._done = done
        self._failed = failed
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="a44-step")
        # Plain functions that were seen to return an awaitable, by the identity of their code.
        self._awaited: dict[int, CodeType] = {}

    def start(self, attempt: Attempt, context: Context) -> None:
        """`context` is the attempt's own."""
        self.running[attempt.token] = attempt
        if self._belongs_on_loop(attempt.fn):
            self._start_task(attempt, context, None)
        else:
            attempt.timer = self._loop.call_later(attempt.timeout, self._overdue, attempt)
            attempt.thread = self._pool.submit(self._in_thread, attempt, context)

    def stop(self, attempt: Attempt, why: str) -> None:
        """Cancel what can be cancelled. It reports once it has ended; a thread past its timeout at once."""
        if attempt.reported:
            return
        attempt.stop = why
        if attempt.task is not None:
            attempt.task.cancel()
        elif attempt.thread is not None and attempt.thread.cancel():
            self.never_ran(attempt)
        elif why is TIMED_OUT:
            self._report_failure(attempt, None, lingers=True)

    def never_ran(self, attempt: Attempt) -> None:
        """It was stopped before its function was called."""
        self._report_failure(attempt, None)
        self._over(attempt)

    # -- on the loop --------------------------------------------------------------------------------

    def _belongs_on_loop(self, fn: Callable[[], Any]) -> bool:
        try:
            code = getattr(fn, "__code__", None) or _code_of(fn)
            if code is None:
                return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
            return bool(code.co_flags & inspect.CO_COROUTINE) or id(code) in self._awaited
        except Exception:  # noqa: BLE001 - what does not let itself be looked at is called all the same, in a thread
            return False

    def _start_task(self, attempt: Attempt, context: Context, awaitable: Awaitable[Any] | None) -> None:
        driven = _Metered(self._drive(attempt, awaitable), attempt, self)
        attempt.task = asyncio.Task(driven, loop=self._loop, context=context)

    async def _drive(self, attempt: Attempt, awaitable: Awaitable[Any] | None) -> None:
        """Calls the function, or waits for what it has returned already."""
        try:
            if awaitable is None:
                ATTEMPT.set(attempt)
                awaitable = attempt.fn()
            value = await awaitable if hasattr(type(awaitable), "__await__") else self._unlearn(attempt, awaitable)
            text = self._settings.codec.encode(value)
        except BaseException as error:  # noqa: BLE001 - whatever a step raises, also an exit, is its outcome
            self._report_failure(attempt, error)
        else:
            self._report_success(attempt, text)
        self._over(attempt)

    def _unlearn(self, attempt: Attempt, value: Any) -> Any:
        """It has returned a value after all and may have blocked: to a thread the next time."""
        code = _code_of(attempt.fn)
        if code is not None:
            self._awaited.pop(id(code), None)
        return value

    def arm(self, attempt: Attempt) -> None:
        """The coroutine has not ended in its first round: from now on it can be late."""
        attempt.timer = self._loop.call_later(attempt.timeout, self._overdue, attempt)

    # -- in threads ---------------------------------------------------------------------------------

    def _in_thread(self, attempt: Attempt, context: Context) -> None:
        attempt.begun = time.monotonic()
        before = time.thread_time()
        value: Any = None
        text = failure = None
        try:
            context.run(ATTEMPT.set, attempt)
            value = context.run(attempt.fn)
            if not hasattr(type(value), "__await__"):
                text = self._settings.codec.encode(value)
        except BaseException as error:  # noqa: BLE001 - whatever a step raises, also an exit, is its outcome
            failure = error
        attempt.cpu = time.thread_time() - before
        if text is None and failure is None:
            self._loop.call_soon_threadsafe(self._await_value, attempt, context, value)
        else:
            self._loop.call_soon_threadsafe(self._back, attempt, text, failure)

    def _back(self, attempt: Attempt, text: str | None, failure: BaseException | None) -> None:
        attempt.thread = None
        if failure is not None:
            self._report_failure(attempt, failure)
        elif text is not None:
            self._report_success(attempt, text)
        self._over(attempt)

    def _await_value(self, attempt: Attempt, context: Context, value: Awaitable[Any]) -> None:
        attempt.thread = None
        code = _code_of(attempt.fn)
        if code is not None:
            self._awaited[id(code)] = code
        if attempt.stop:
            if isinstance(value, Coroutine):
                value.close()
            self._report_failure(attempt, None)
            self._over(attempt)
            return
        self._start_task(attempt, context, value)

    # -- timeouts and reports -----------------------------------------------------------------------

    def _overdue(self, attempt: Attempt) -> None:
        if attempt.reported or attempt.stop is DROPPED:  # whoever dropped it knows its timeout too
            return
        # The timeout runs from the actual start: a function that queued for a thread gets all of its time.
        left = attempt.timeout - attempt.spent()[0]
        if left > _TIMER_SLACK:
            attempt.timer = self._loop.call_later(left, self._overdue, attempt)
        else:
            self.stop(attempt, TIMED_OUT)

    def _report_success(self, attempt: Attempt, text: str) -> None:
        if self._conclude(attempt):
            attempt.item.value, attempt.item.error = text, None
            self._done(attempt, text)

    def _report_failure(
        self,
        attempt: Attempt,
        error: BaseException | None,
        *,
        lingers: bool = False,
    ) -> None:
        if not self._conclude(attempt):
            return
        wire = self._wire_error(attempt, error)
        attempt.item.value, attempt.item.error = None, wire
        self._failed(attempt, wire, lingers)

    def _conclude(self, attempt: Attempt) -> bool:
        if attempt.reported:
            return False
        attempt.reported = True
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        return True

    def _over(self, attempt: Attempt) -> None:
        """Nothing of it runs any more."""
        self.running.pop(attempt.token, None)
        attempt.task = None  # each holds the other

    def _wire_error(self, attempt: Attempt, error: BaseException | None) -> dict[str, Any]:
        """What it raised, unless that is the stop itself; what ends past its timeout has failed by that."""
        if error is None or attempt.stop is TIMED_OUT or (attempt.stop and isinstance(error, asyncio.CancelledError)):
            return self._stop_error(attempt)
        if not isinstance(error, MemoryError):
            return to_wire(error, self._settings.root)
        wire = to_wire(error, self._settings.root, code=STEP_MEMORY)
        wire["message"] = f"step {attempt.item.id!r} asked for more memory than its host may take"
        return wire

    def _stop_error(self, attempt: Attempt) -> dict[str, Any]:
        late = attempt.stop is TIMED_OUT
        return {
            "code": STEP_TIMEOUT if late else CANCELLED,
            "type": "StepTimeout" if late else "CancelledError",
            "message": (
                f"step {attempt.item.id!r} ran past its timeout of {attempt.timeout:g} s"
                if late
                else f"step {attempt.item.id!r} was cancelled"
            ),
            "file": None,
            "line": None,
            "retryable": late,
            "retry_after": None,
        }


_TIMER_SLACK = 0.001


def _code_of(fn: Any) -> CodeType | None:
    """The code that a call of `fn` runs first, where it is Python code."""
    try:
        while isinstance(fn, functools.partial):
            fn = fn.func
        code = getattr(fn, "__code__", None)
        return code if isinstance(code, CodeType) else None
    except Exception:  # noqa: BLE001 - an object of the author's may answer with whatever it likes
        return None


class _Metered(Coroutine[Any, Any, None]):
    """A coroutine that measures its rounds on the loop, and has its timeout armed when it first waits. What ends in a
    round has told itself what it cost.
    """

    __slots__ = ("_attempt", "_inner", "_runner")

    def __init__(
        self,
        inner: Coroutine[Any, Any, None],
        attempt: Attempt,
        runner: StepRunner,
    ) -> None:
        self._inner = inner
        self._attempt = attempt
        self._runner = runner

    def send(self, value: Any) -> Any:
        attempt = self._attempt
        attempt.round_began = began = time.monotonic()
        if attempt.begun is None:
            attempt.begun = began
        waits_for = self._inner.send(value)
        self._wait(began)
        return waits_for

    def _wait(self, began: float) -> None:
        attempt = self._attempt
        attempt.cpu, attempt.round_began = attempt.cpu + time.monotonic() - began, None
        if attempt.timer is None and not attempt.reported:
            self._runner.arm(attempt)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        attempt = self._attempt
        attempt.round_began = began = time.monotonic()
        try:
            waits_for = self._inner.throw(typ) if val is None and tb is None else self._inner.throw(typ, val, tb)
        except asyncio.CancelledError:  # its own code lets none out: it was cancelled before it ran
            self._runner.never_ran(attempt)
            raise
        self._wait(began)
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()
