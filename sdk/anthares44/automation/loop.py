"""The event loop of one run: what is ready runs in order until nothing is; then it waits for a delivery.

It never looks at a clock or a socket. Time is the run's recorded time, `call_later` becomes a durable
timer of the run, and futures and tasks hash by the run and the order in which they were made, so that live
and on replay the same deliveries give the same order. Input and output raise E_IO_OUTSIDE_STEP.
"""

import asyncio
import contextlib
import itertools
from asyncio.events import _set_running_loop  # public for makers of event loops
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVarTuple, Unpack
from zlib import crc32

from anthares44.automation.errors import shown
from anthares44.automation.refusals import PUT_AWAY, ClosedLoop, Owner

# A body that polls with sleep(0) never comes to rest, and no delivery could ever reach it.
MOST_ROUNDS = 100_000
_KEEP_TASKS = 64
_Args = TypeVarTuple("_Args")


class RunFuture(asyncio.Future[Any]):
    """A future whose place in a set depends on the run, not on its address."""

    __slots__ = ("place",)

    def __init__(self, loop: "RunLoop") -> None:
        self.place = next(loop.places)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.place


class ItemFuture(RunFuture):
    """The outcome of a step or a sleep; cancelling it abandons the item."""

    __slots__ = ("item",)

    def __init__(self, loop: "RunLoop", item: str) -> None:
        self.place = next(loop.places)
        self.item = item
        asyncio.Future.__init__(self, loop=loop)

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.get_loop().owner.abandon(self.item)  # type: ignore[attr-defined]
        return cancelled

    def settle_cancelled(self) -> None:
        """The outcome itself is a cancellation: nothing is left to abandon."""
        super().cancel()


class RunTask(asyncio.Task[Any]):
    """A task whose place in a set depends on the run, not on its address."""

    __slots__ = ("place",)

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        loop: "RunLoop",
        name: str | None,
        context: Context | None,
    ) -> None:
        # asyncio hashes the task while it is being made, so the place comes first.
        self.place = next(loop.places)
        super().__init__(coro, loop=loop, name=name or f"task-{self.place - loop.first_place}", context=context)

    def __hash__(self) -> int:
        return self.place


class RunTimer(asyncio.TimerHandle):
    """A durable timer; `item` is its id in the run's log."""

    __slots__ = ("item",)

    item: str | None


class RunLoop(ClosedLoop):
    """`seed` is the run's own: asyncio keeps the tasks of all loops in one set, where places that began at 1 in
    every run would collide (with 2,000 runs that was a sixth of a host's time). `outer` is the loop, if any, that runs
    around it: to ask for it at each turn would be a call of the system.
    """

    def __init__(self, owner: Owner, seed: str, outer: asyncio.AbstractEventLoop | None) -> None:
        self.owner = owner
        self._outer = outer
        self.first_place = crc32(seed.encode())
        self.places = itertools.count(self.first_place + 1)
        self.tasks: list[RunTask] = []
        self._prune_at = _KEEP_TASKS
        self._ready: list[asyncio.Handle] = []
        self.closed = False

    # -- running ------------------------------------------------------------------------------------

    def run_ready(self) -> None:
        """Run until nothing is ready. Call it from a callback of the outer loop, never from a task."""
        rounds = 0
        _set_running_loop(self)
        try:
            while self._ready:
                batch, self._ready = self._ready, []
                rounds += 1
                if rounds > MOST_ROUNDS:
                    self.owner.spins(rounds)
                    return
                for handle in batch:
                    if not handle._cancelled:  # noqa: SLF001 - as event loops do
                        try:
                            handle._run()  # noqa: SLF001 - as event loops do
                        except (SystemExit, KeyboardInterrupt):
                            continue  # an exit asked for by the body is its outcome: the task holds it already
                        except BaseException as fault:  # noqa: BLE001 - asyncio could not even describe what failed
                            self.owner.warn(f"a callback failed, and cannot be shown: {shown(fault)}")
        finally:
            _set_running_loop(self._outer)

    def fire(self, timer: RunTimer) -> None:
        """The timer is due."""
        timer.item = None
        self._ready.append(timer)

    def report_lost(self) -> None:
        """Tell of tasks that failed and that nobody awaited; the body has ended."""
        for task in self.tasks:
            if task.done() and task._log_traceback:  # noqa: SLF001 - asyncio's own mark
                task._log_traceback = False  # noqa: SLF001 - told now
                self.owner.warn(f"{task.get_name()} failed and was never awaited: {shown(task.exception())}")

    def forget(self) -> None:
        """Drop what the body still holds; its `finally` blocks run, with every call of the SDK refused."""
        self.closed = True
        self._ready.clear()
        if not all(map(RunTask.done, self.tasks)):
            self._unwind()
        self.tasks.clear()
        self.owner = PUT_AWAY  # else the run and its loop would hold each other until a collection

    def _unwind(self) -> None:
        _set_running_loop(self)
        try:
            for task in self.tasks:
                if task.done():
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - dropped on purpose, not by mistake
                _close(task)
        finally:
            _set_running_loop(self._outer)
            self._ready.clear()

    # -- what asyncio asks of a loop ----------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = RunTimer(self.time() + delay, callback, args, self, context)
        timer.item = None
        if delay <= 0:
            self._ready.append(timer)
        else:
            # Rounding takes out what adding and subtracting the run's time has left behind.
            self.owner.request_timer(timer, round(float(delay), 6))
        return timer

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_later(round(when - self.time(), 6), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        item, handle.item = handle.item, None  # type: ignore[attr-defined]
        if item is not None:
            self.owner.abandon(item)

    def time(self) -> float:
        return self.owner.elapsed()

    def create_future(self) -> RunFuture:
        return RunFuture(self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_later: Any,
    ) -> RunTask:
        task = RunTask(coro, self, name, context)
        # A task that nobody else holds must not vanish at a moment that the garbage collector chooses.
        self.tasks.append(task)
        if len(self.tasks) > self._prune_at:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._prune_at = max(_KEEP_TASKS, 2 * len(self.tasks))
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.closed

    def is_closed(self) -> bool:
        return self.closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.closed:
            return
        error = context.get("exception")
        self.owner.warn(f"{context.get('message')}: {shown(error)}" if error else str(context.get("message")))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self.closed:
            self.create_task(generator.aclose())


def _close(task: RunTask) -> None:
    coroutine = task.get_coro()
    if coroutine is None:
        return
    for _ in range(_CLOSE_TRIES):
        # Whatever the body does on its way out is no turn: nothing of it can reach the log.
        with contextlib.suppress(BaseException):
            coroutine.close()
            return


_CLOSE_TRIES = 8
