"""The scheduler: timers that are due, owners that are lost, slots that are free. Any number may run.

It looks once a second with one statement and acts only where there is something; a wake-up or a timer due
sooner makes it look earlier. It holds no state: killing it costs at most a look.
"""

import asyncio
import time
from collections import Counter

import structlog

from processors.ports.hints import Hints
from processors.ports.schedule import Outlook, Schedule
from schemas.errors import AutomationError

_log = structlog.get_logger("scheduler")
LOOK_SECONDS = 1.0
SOONEST_SECONDS = 0.01
RECOUNT_SECONDS = 60.0


class Scheduler:
    def __init__(self, schedule: Schedule, hints: Hints) -> None:
        self._schedule = schedule
        self._hints = hints
        self._woken = asyncio.Event()
        self.counts: Counter[str] = Counter()

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._woken.set())
        upkeep = time.monotonic()
        try:
            while not stop.is_set():
                wait = LOOK_SECONDS
                try:
                    wait = await self._look()
                    if time.monotonic() >= upkeep:
                        await self._keep_up()
                        upkeep = time.monotonic() + RECOUNT_SECONDS
                except AutomationError as exc:
                    _log.warning("look_failed", reason=str(exc))
                await self._rest(wait)
        finally:
            stopping.cancel()

    async def _look(self) -> float:
        """One look and what follows from it; answers how long to rest, in seconds."""
        outlook: Outlook = await self._schedule.look()
        if outlook.sessions_late:
            await self._reap()
        woken = await self._schedule.wake_due() if outlook.timers_due else 0
        self.counts["woken"] += woken
        if woken or outlook.runs_hungry:
            grants = await self._schedule.feed()
            self.counts["granted"] += len(grants)
            self._hints.granted(grants)
        if outlook.next_due is None:
            return LOOK_SECONDS
        return min(max(outlook.next_due, SOONEST_SECONDS), LOOK_SECONDS)

    async def _keep_up(self) -> None:
        """What need not be quick; reaping as well, for what a scheduler left undone that died in the middle of it."""
        await self._reap()
        await self._schedule.sweep()
        await self._schedule.recount()

    async def _reap(self) -> None:
        grants = await self._schedule.reap()
        self.counts["lease_reclaim"] += len(grants)
        self._hints.granted(grants)

    async def _rest(self, seconds: float) -> None:
        waiting = asyncio.ensure_future(self._woken.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()
        self._woken.clear()
