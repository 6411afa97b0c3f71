"""Many waiters, one commit: what gathers while a batch is written is the next batch.

No timer adds latency. Each waiter gets its own answer; when a whole batch is refused it is halved until
the item at fault stands alone, so that one bad item never fails its neighbours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from schemas.errors import Broken, Unavailable

Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupCommit(Generic[Item, Result]):
    """`write` takes a batch and answers one result an item; `most` bounds a batch, `queued` what may wait."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, most: int = 500, queued: int = 20_000
    ) -> None:
        self._write = write
        self._most = most
        self._queued = queued
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """Durable when it returns. Raises `Unavailable` when too much waits already."""
        if len(self._waiting) >= self._queued:
            raise Unavailable(
                "E_UNAVAILABLE", f"{len(self._waiting)} requests wait for the log already; try again soon"
            )
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._drain())
        return await answer

    async def settled(self) -> None:
        """Wait until nothing is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._settle([one for one in batch if not one[1].done()])
        finally:
            self._writing = None

    async def _settle(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        try:
            results = await self._write([item for item, _ in batch])
        except Broken as exc:
            await self._halve(batch, exc)
        except Exception as exc:  # noqa: BLE001  every waiter hears of it; nothing is swallowed
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(exc)
        else:
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
