"""One poll for all who wait: whatever their number, one question every 20 ms, slower while nothing happens.

A hint that something happened brings the next question at once; without hints the poll suffices.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import structlog

from schemas.errors import AutomationError, Unavailable

K = TypeVar("K")
V = TypeVar("V")

_SHORTEST = 0.02
_LONGEST = 0.25
_SLOWER = 1.4

_log = structlog.get_logger(__name__)


class SharedPoll(Generic[K, V]):
    """`fetch` answers the keys that have something to tell, and only those."""

    def __init__(self, fetch: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._fetch = fetch
        self._waiting: dict[K, set[asyncio.Future[V]]] = {}
        self._newcomer = asyncio.Event()
        self._hurried = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._closed: AutomationError | None = None

    async def wait(self, key: K, seconds: float, *, look_first: bool = False) -> V | None:
        """What the key has to tell, or None when it said nothing for so long. `look_first` where it may have had
        something to tell for long: it is asked at once.
        """
        if self._closed is not None:
            raise self._closed
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        self._newcomer.set()
        if look_first:
            self.hurry()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            self._forget(key, future)

    def hurry(self) -> None:
        """Something has happened that somebody may wait for: ask now."""
        self._hurried.set()

    async def close(self) -> None:
        """Everyone who waits is told that the process stops."""
        self._closed = Unavailable("E_SHUTTING_DOWN", "this process is stopping; ask again")
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        self._fail(self._closed)

    async def _poll(self) -> None:
        try:
            pace = _SHORTEST
            while self._waiting:
                pace = await self._pause(pace)
                await self._ask()
        finally:
            self._polling = None

    async def _pause(self, pace: float) -> float:
        """Wait for a hint, at most until the next question is due; a newcomer brings the shortest pace back."""
        if pace > _SHORTEST and not self._hurried.is_set():
            await _first_of(pace - _SHORTEST, self._newcomer, self._hurried)
        await _first_of(_SHORTEST, self._hurried)
        if self._newcomer.is_set() or self._hurried.is_set():
            self._newcomer.clear()
            self._hurried.clear()
            return _SHORTEST
        return min(pace * _SLOWER, _LONGEST)

    async def _ask(self) -> None:
        try:
            found = await self._fetch(list(self._waiting))
        except Unavailable as exc:  # those who wait go on waiting: the database may come back in time
            _log.warning("poll_unavailable", error=str(exc), waiting=len(self._waiting))
        except Exception as exc:  # noqa: BLE001 - it is handed to those who wait, not swallowed
            self._fail(exc)
        else:
            for key, value in found.items():
                for future in self._waiting.pop(key, ()):
                    if not future.done():
                        future.set_result(value)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in (future for futures in waiting.values() for future in futures):
            if not future.done():
                future.set_exception(error)

    def _forget(self, key: K, future: "asyncio.Future[V]") -> None:
        futures = self._waiting.get(key)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._waiting[key]


async def _first_of(seconds: float, *events: asyncio.Event) -> None:
    """Wait until one of the events is set, at most so long."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
