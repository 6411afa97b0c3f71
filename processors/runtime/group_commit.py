"""Many waiters, one commit: what gathers while a batch is written is the next batch.

No timer adds latency. Each waiter gets its own answer; when a whole batch is refused it is halved until
the item at fault stands alone, so that one bad item never fails its neighbours. While writing stalls, the
queue is bounded in number and in weight, and nobody waits longer than the patience that was given.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from schemas.errors import Broken, Unavailable

Item = TypeVar("Item")
Result = TypeVar("Result")
MEGABYTE = 1_000_000
_LONGEST_WAIT = 30  # seconds that callers are told to stay away, at most
_NEWEST = 0.2  # how much the newest batch counts in what an item takes


class GroupCommit(Generic[Item, Result]):
    """`write` takes a batch and answers one result an item; `weigh` tells an item's bytes.

    `most` and `heaviest` bound a batch, `queued` and `weight` what may wait, `patience` (seconds) how long.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        weigh: Callable[[Item], int] = lambda _: 0,
        *,
        most: int = 500,
        heaviest: int = 8 * MEGABYTE,
        queued: int = 20_000,
        weight: int = 256 * MEGABYTE,
        patience: float | None = None,
    ) -> None:
        self._write = write
        self._weigh = weigh
        self._most, self._heaviest = most, heaviest
        self._queued, self._weight = queued, weight
        self._patience = patience
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._waiting_weight = 0
        self._seconds_each = 0.0  # what an item took of late, of the time of its batch
        self._writing: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """Durable when it returns. Raises `Unavailable`: E_OVERLOADED when too much waits already, E_UNAVAILABLE after
        the patience; then it is not known whether the item is written yet.
        """
        if len(self._waiting) >= self._queued or self._waiting_weight > self._weight:
            raise self._overloaded()
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        self._waiting_weight += self._weigh(item)
        if self._writing is None:
            self._writing = asyncio.create_task(self._drain())
        try:
            async with asyncio.timeout(self._patience):
                return await answer
        except TimeoutError:
            raise Unavailable(
                "E_UNAVAILABLE", f"it was not written within {self._patience:g} s; send it again with the same key"
            ) from None

    def _overloaded(self) -> Unavailable:
        """How soon to come again: when what waits is written, at the pace of late."""
        seconds = min(max(math.ceil(len(self._waiting) * self._seconds_each), 1), _LONGEST_WAIT)
        return Unavailable(
            "E_OVERLOADED",
            f"{len(self._waiting)} requests wait for the log already; send it again in {seconds} s, with the same key",
            details={"retry_after": seconds},
        )

    async def settled(self, seconds: float | None = None) -> bool:
        """Wait until nothing is being written, or so long; says whether nothing is."""
        while self._writing is not None:
            done, _ = await asyncio.wait([self._writing], timeout=seconds)
            if not done:
                return False
        return True

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._settle([one for one in self._next() if not one[1].done()])
        finally:
            self._writing = None

    def _next(self) -> Sequence[tuple[Item, asyncio.Future[Result]]]:
        """The oldest that wait, one at least, within the bounds of a batch."""
        count = weight = 0
        for item, _ in self._waiting[: self._most]:
            more = self._weigh(item)
            if count and weight + more > self._heaviest:
                break
            count, weight = count + 1, weight + more
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_weight -= weight
        return batch

    async def _settle(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        begun = time.monotonic()
        try:
            results = await self._write([item for item, _ in batch])
        except Broken as exc:
            await self._halve(batch, exc)
        except Exception as exc:  # noqa: BLE001  every waiter hears of it; nothing is swallowed
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(exc)
        else:
            self._seconds_each += ((time.monotonic() - begun) / len(batch) - self._seconds_each) * _NEWEST
            for (_, answer), result in zip(batch, results, strict=True):
                if not answer.done():
                    answer.set_result(result)

    async def _halve(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]], exc: Broken) -> None:
        if len(batch) == 1:
            if not batch[0][1].done():
                batch[0][1].set_exception(exc)
            return
        middle = len(batch) // 2
        await self._settle(batch[:middle])
        await self._settle(batch[middle:])
