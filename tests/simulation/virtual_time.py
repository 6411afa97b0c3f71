"""An event loop whose clock is virtual and whose processes can be stopped or killed between any two steps.

Every callback belongs to the process in whose context it was made. Within a process callbacks keep their order, as
asyncio promises; which process goes next is drawn from the seed. Nothing waits: when nobody can go on, the clock
moves to the next timer. While a simulation runs, the process's own clock and dice are the simulation's.
"""

import asyncio
import contextvars
import heapq
import itertools
import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

_Random = random.Random
MOST_CLOSINGS = 50


class Life(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """What runs, stops and dies together. A dead one keeps what was about to run, and never runs it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = Life.RUNNING
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def is_alive(self) -> bool:
        return self.life is not Life.DEAD

    def __repr__(self) -> str:
        return f"<{self.name}>"


_current: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class SimulatedLoop(asyncio.BaseEventLoop):
    """`steps` counts callbacks. `world` is the process of everything that stands outside: servers, networks, people."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.now = 1_000.0
        self.steps = 0
        self.world = Process("world")
        self._dice = dice
        self._runnable: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._contexts: dict[Process, contextvars.Context] = {}

    # what asyncio asks of a loop

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _run_once(self) -> None:
        if not self._runnable:
            self._advance()
        at = 0 if len(self._runnable) == 1 else int(self._dice.random() * len(self._runnable))
        process = self._runnable[at]
        handle = process.ready.popleft()
        if not process.ready:
            del self._runnable[at]
        if not handle.cancelled():
            self.steps += 1
            handle._run()

    # processes

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process; everything that it starts belongs to the process as well."""
        task = self.create_task(work, context=self.context_of(process).copy())
        process.tasks.append(task)
        return task

    def context_of(self, process: Process) -> contextvars.Context:
        """For callbacks of another process, such as a server's."""
        found = self._contexts.get(process)
        if found is None:
            found = self._contexts[process] = contextvars.Context()
            found.run(_current.set, process)
        return found

    def later(self, process: Process, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self.call_at(self.now + seconds, callback, *args, context=self.context_of(process))

    def stop_process(self, process: Process, life: Life) -> None:
        """Nothing of it runs from now on."""
        process.life = life
        if process in self._runnable:
            self._runnable.remove(process)

    def resume_process(self, process: Process) -> None:
        if process.life is Life.PAUSED:
            process.life = Life.RUNNING
            if process.ready:
                self._runnable.append(process)

    def current(self) -> Process:
        return _current.get(self.world)

    def _put(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(_current, self.world)  # type: ignore[attr-defined]
        process.ready.append(handle)
        if len(process.ready) == 1 and process.life is Life.RUNNING:
            self._runnable.append(process)

    def _advance(self) -> None:
        while self._timers:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled():
                continue
            self.now = max(self.now, when)
            self._put(timer)
            if self._runnable:  # not where it belongs to a process that is stopped
                return
        raise RuntimeError("nothing will ever happen again")

    # the end

    def bury(self) -> None:
        """Close what was left in the middle, so that nothing of a dead process is heard when memory is cleaned up."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            for _ in range(MOST_CLOSINGS):
                try:
                    coroutine.close()
                except BaseException:  # noqa: BLE001, S112  a `finally` that awaits, without a loop: it is closed again
                    continue
                break
        self._timers.clear()


@contextmanager
def simulated(loop: SimulatedLoop, chance: random.Random) -> Iterator[None]:
    """The clock is the loop's, and all dice of product code come from `chance`. The wall clock tells nonsense: nothing
    may depend on it.
    """

    def seeded(*seed: Any) -> random.Random:
        return _Random(*seed) if seed else _Random(chance.getrandbits(64))

    before = time.monotonic, time.time, os.urandom
    time.monotonic = loop.time
    time.time = lambda: loop.now + chance.uniform(-1e6, 1e6)
    os.urandom = chance.randbytes
    setattr(random, "Random", seeded)  # noqa: B010  a class may not be assigned to by its name
    try:
        yield
    finally:
        time.monotonic, time.time, os.urandom = before
        setattr(random, "Random", _Random)  # noqa: B010  as above
