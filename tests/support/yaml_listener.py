"""A body listener that remembers what it is told, and lets a test wait for it."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from processors.engine.requests import BodyEnd, Request
from schemas.records import ErrorInfo


@dataclass(frozen=True)
class Told:
    """One callback: its name and its arguments, run id and fence first."""

    name: str
    run_id: str
    fence: int
    arguments: tuple[Any, ...]


@dataclass
class RememberingListener:
    told: list[Told] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self, name: str, seconds: float = 10.0) -> tuple[Any, ...]:
        """The arguments of the oldest callback of this name that no `next` has taken yet."""
        return (await self.take(lambda one: one.name == name, name, seconds)).arguments

    async def take(self, wanted: Callable[[Told], bool], what: str, seconds: float = 10.0) -> Told:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    for one in self.told:
                        if wanted(one):
                            self.told.remove(one)
                            return one
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{what} was not told; what was: {self.told}") from None

    def _remember(self, name: str, run_id: str, fence: int, *arguments: Any) -> None:
        self.told.append(Told(name, run_id, fence, arguments))
        self._news.set()

    def turned(self, run_id: str, fence: int, after: int, requests: Sequence[Request], end: BodyEnd | None) -> None:
        self._remember("turned", run_id, fence, after, list(requests), end)

    def succeeded(self, run_id: str, fence: int, item: str, attempt: int, token: str, value: str, cost: float) -> None:
        self._remember("succeeded", run_id, fence, item, attempt, token, value, cost)

    def failed(
        self, run_id: str, fence: int, item: str, attempt: int, token: str, error: ErrorInfo, cost: float
    ) -> None:
        self._remember("failed", run_id, fence, item, attempt, token, error, cost)

    def diverged(self, run_id: str, fence: int, error: ErrorInfo) -> None:
        self._remember("diverged", run_id, fence, error)

    def late(
        self,
        run_id: str,
        fence: int,
        item: str,
        attempt: int,
        status: str,
        value: str | None,
        error: ErrorInfo | None,
        cost: float,
    ) -> None:
        self._remember("late", run_id, fence, item, attempt, status, value, error, cost)

    def lost(
        self,
        runs: Sequence[tuple[str, int]],
        reason: str,
        *,
        suspected: bool = True,
        unbegun: Collection[tuple[str, str]] = (),
    ) -> None:
        raise AssertionError(f"a YAML body has no host that could go, and {runs} were told as lost: {reason}")
