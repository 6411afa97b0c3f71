"""One question for all who ask at the same time: concurrent requests share round trips to Postgres.

An answer never stems from a question that was under way when its asker came: what was committed before
a request began, the request sees.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from schemas.errors import Unavailable

K = TypeVar("K")
V = TypeVar("V")

_PATIENCE = 10.0  # seconds that one question may take before those who wait are told


class SharedLookup(Generic[K, V]):
    """`spacing` is the least time, in seconds, from the start of one question to the start of the next."""

    def __init__(self, fetch: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]], spacing: float = 0.0) -> None:
        self._fetch = fetch
        self._spacing = spacing
        self._next = 0.0
        self._waiting: list[tuple[K, asyncio.Future[V | None]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V | None:
        """The value of a key, or None. Raises what the question raised."""
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, future))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await future

    async def _ask(self) -> None:
        try:
            while self._waiting:
                await self._space()
                asked, self._waiting = self._waiting, []
                await self._answer(asked)
        finally:
            self._asking = None

    async def _space(self) -> None:
        loop = asyncio.get_running_loop()
        early = self._next - loop.time()
        if early > 0:
            await asyncio.sleep(early)
        self._next = loop.time() + self._spacing

    async def _answer(self, asked: Sequence[tuple[K, asyncio.Future[V | None]]]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await self._fetch(list({key: None for key, _ in asked}))
        except TimeoutError as exc:
            late = Unavailable("E_UNAVAILABLE", f"Postgres gave no answer within {_PATIENCE:g} s")
            late.__cause__ = exc
            _fail(asked, late)
        except Exception as exc:  # noqa: BLE001 - it is handed to those who asked, not swallowed
            _fail(asked, exc)
        else:
            for key, future in asked:
                if not future.done():
                    future.set_result(found.get(key))


def _fail(asked: Sequence[tuple[K, "asyncio.Future[V | None]"]], error: Exception) -> None:
    for _, future in asked:
        if not future.done():
            future.set_exception(error)
