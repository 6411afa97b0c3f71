"""How much of a project this process takes in a second: events, webhooks and runs by hand, counted together.

A bucket for each project that has a limit, as full as one second of it. A batch counts as its events and may overdraw:
what follows waits until that is made up for. The limits are read now and then, beside the requests.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from schemas.errors import Unavailable

Rates = Callable[[], Awaitable[Mapping[str, float]]]
_log = structlog.get_logger(__name__)


class RateLimits:
    """`fetch` answers how many a second, by project; projects that are not named have no limit."""

    def __init__(self, fetch: Rates, every: float = 3.0) -> None:
        self._fetch = fetch
        self._every = every
        self._due = 0.0
        self._rates: Mapping[str, float] = {}
        self._buckets: dict[str, tuple[float, float]] = {}
        self._refreshing: asyncio.Task[None] | None = None

    def charge(self, project_id: str, count: int) -> None:
        """More came with a request that was let in already."""
        bucket = self._buckets.get(project_id)
        if bucket is not None:
            self._buckets[project_id] = (bucket[0] - count, bucket[1])

    def take(self, project_id: str) -> None:
        """Raises `Unavailable` E_RATE_LIMITED when the project has nothing left."""
        now = time.monotonic()
        if now >= self._due and self._refreshing is None:
            self._refreshing = asyncio.create_task(self.refresh())
        rate = self._rates.get(project_id)
        if rate is None:
            return
        full = max(rate, 1.0)
        left, since = self._buckets.get(project_id, (full, now))
        left = min(full, left + (now - since) * rate)
        if left < 1.0:
            self._buckets[project_id] = (left, now)
            raise _limited(rate, (1.0 - left) / rate)
        self._buckets[project_id] = (left - 1.0, now)

    async def refresh(self) -> None:
        """Limits that cannot be read stay as they were."""
        try:
            self._rates = await self._fetch()
            self._buckets = {project: bucket for project, bucket in self._buckets.items() if project in self._rates}
        except Unavailable as exc:
            _log.warning("rate_limits_unread", reason=str(exc))
        finally:
            self._due = time.monotonic() + self._every
            self._refreshing = None


def _limited(rate: float, seconds: float) -> Unavailable:
    wait = max(math.ceil(seconds), 1)
    return Unavailable(
        "E_RATE_LIMITED",
        f"the project may send {rate:g} events a second to a gateway; send it again in {wait} s, with the same key",
        details={"retry_after": wait},
    )
