"""Orphans in storage: bodies that were put and that no run came to refer to, because their key was used, or their door
died before it took the key, or no trigger asked for them.

Only days that are long over are looked at: what was put then was taken by ingest, or is in a dead letter, since; and
nothing is put there any more, so that what is found to be nobody's stays so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import structlog

from processors.ports.measures import Measures
from processors.ports.storage import Storage
from schemas.errors import AutomationError
from schemas.stored_bodies import Reference

_log = structlog.get_logger("scheduler")
SWEEP_SECONDS = 6 * 3600.0
AT_ONCE = 1000
Kept = Callable[[Sequence[Reference]], Awaitable[Collection[Reference]]]


async def sweep_bodies(storage: Storage, kept: Kept, now: datetime, days: int) -> int:
    """Remove what was put over `days` days ago and is nobody's; answers how much that was. Raises `Unavailable`."""
    first_kept, removed = (now - timedelta(days=days)).strftime("%Y%m%d"), 0
    for day in await storage.days():
        if day >= first_kept:
            break
        stored = await storage.stored_on(day)
        for at in range(0, len(stored), AT_ONCE):
            some = stored[at : at + AT_ONCE]
            orphans = set(some) - set(await kept(some))
            await storage.remove(orphans)
            removed += len(orphans)
    return removed


async def run_sweep(
    storage: Storage, kept: Kept, now: Callable[[], datetime], days: int, stop: asyncio.Event, measures: Measures
) -> None:
    """Sweep now and then, until `stop`."""
    while not stop.is_set():
        try:
            measures.count("stored_bodies_swept_total", await sweep_bodies(storage, kept, now(), days))
        except AutomationError as exc:
            _log.warning("upkeep_failed", part="stored_bodies", reason=str(exc))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SWEEP_SECONDS)
