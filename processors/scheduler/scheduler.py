"""The scheduler: timers that are due, owners that are lost, slots that are free. Any number may run.

It looks once a second with one statement and acts only where there is something; a wake-up or a timer due
sooner makes it look earlier. It holds no state: killing it costs at most a look.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from processors.ports import crash_points
from processors.ports.hints import Hints
from processors.ports.measures import Measures
from processors.ports.schedule import Outlook, Schedule, Silent
from processors.scheduler.redriver import Redriver
from schemas.errors import AutomationError

_log = structlog.get_logger("scheduler")
LOOK_SECONDS = 1.0
SOONEST_SECONDS = 0.01
RECOUNT_SECONDS = 60.0
# A process is taken for dead when it was silent for two looks, this far apart or more.
SILENCE_SECONDS = 0.8
SECOND_LOOK_SECONDS = 0.4


class Scheduler:
    """`redriver` None: dead letters wait, whatever was ordered."""

    def __init__(
        self, schedule: Schedule, hints: Hints, measures: Measures | None = None, redriver: Redriver | None = None
    ) -> None:
        self._schedule = schedule
        self.measures = measures or Measures()
        self._silent: dict[Silent, float] = {}
        self._hints = hints
        self._redriver = redriver
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._woken.set())
        upkeep = time.monotonic()
        sweeping: asyncio.Task[None] | None = None
        try:
            while not stop.is_set():
                wait = LOOK_SECONDS
                try:
                    wait = await self._look()
                except AutomationError as exc:
                    _log.warning("look_failed", reason=str(exc))
                if time.monotonic() >= upkeep:
                    upkeep = time.monotonic() + RECOUNT_SECONDS
                    await _attempt("recount", self._schedule.recount)
                    # For what a scheduler left undone that died in the middle of it.
                    await _attempt("reap", self._reap)
                    if sweeping is not None and sweeping.done():
                        sweeping = sweeping.result()  # raises what is no fault of the surroundings
                    if sweeping is None:
                        sweeping = asyncio.create_task(_attempt("sweep", self._schedule.sweep))
                await self._rest(wait)
        finally:
            stopping.cancel()
            if sweeping is not None:
                sweeping.cancel()
                await asyncio.wait([sweeping])

    async def _look(self) -> float:
        """One look and what follows from it; answers how long to rest, in seconds."""
        outlook: Outlook = await self._schedule.look()
        dead = self._dead(outlook.silent)
        if outlook.sessions_late or dead:
            await self._reap(dead)
        woken = await self._schedule.wake_due() if outlook.timers_due else 0
        self.measures.count("timers_woken_total", woken)
        if woken:
            crash_points.reach("after_wake_before_grant")
        if woken or outlook.runs_hungry:
            grants = await self._schedule.feed()
            self.measures.count("runs_granted_total", len(grants))
            self._hints.granted(grants)
        if outlook.redrives and self._redriver is not None:
            await _attempt("redrive", partial(self._redrive, self._redriver))
        longest = SECOND_LOOK_SECONDS if self._silent else LOOK_SECONDS
        return longest if outlook.next_due is None else min(max(outlook.next_due, SOONEST_SECONDS), longest)

    async def _redrive(self, redriver: Redriver) -> None:
        self._hints.granted(await redriver.look())

    def _dead(self, silent: Sequence[Silent]) -> list[Silent]:
        """Those that were silent before, and have committed nothing since."""
        now = time.monotonic()
        self._silent = {one: self._silent.get(one, now) for one in silent}
        return [one for one, since in self._silent.items() if now - since >= SILENCE_SECONDS]

    async def _reap(self, dead: Sequence[Silent] = ()) -> None:
        grants = await self._schedule.reap(dead)
        if grants:
            crash_points.reach("after_regrant_before_hint")
        self.measures.count("lease_reclaim_total", len(grants))
        self._hints.granted(grants)

    async def _rest(self, seconds: float) -> None:
        waiting = asyncio.ensure_future(self._woken.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()
        self._woken.clear()


async def _attempt(part: str, act: Callable[[], Awaitable[None]]) -> None:
    """A part of the upkeep: one that fails comes again at the next, and keeps no other from being done."""
    try:
        await act()
    except AutomationError as exc:
        _log.warning("upkeep_failed", part=part, reason=str(exc))
