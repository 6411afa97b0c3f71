"""What the memory adapters ask of their loop, on the loop that runs the tests: time goes on by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.simulation.virtual_time import Process


class PlainLoop:
    """One process, the test."""

    def __init__(self) -> None:
        self.world = Process("world")
        self._loop = asyncio.get_running_loop()

    @property
    def now(self) -> float:
        return self._loop.time()

    def time(self) -> float:
        return self._loop.time()

    def create_future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def current(self) -> Process:
        return self.world

    def later(self, process: Process, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(seconds, callback, *args)
