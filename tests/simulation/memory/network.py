"""How long things take, drawn from the seed: hops between processes and servers, the work of a commit."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.virtual_time import SimulatedLoop


@dataclass(slots=True)
class Weather:
    """`slow` is how often a commit takes up to `slowest` seconds; `bumpy` how often a hop takes up to `longest`."""

    slow: float = 0.0
    slowest: float = 3.0
    bumpy: float = 0.0
    longest: float = 0.5


class Network:
    def __init__(self, loop: SimulatedLoop, dice: random.Random, weather: Weather) -> None:
        self.loop = loop
        self.weather = weather
        self._roll = dice.random

    def chance(self, share: float) -> bool:
        return self._roll() < share

    def between(self, low: float, high: float) -> float:
        return low + self._roll() * (high - low)

    def pick(self, count: int) -> int:
        return int(self._roll() * count)

    def delay(self) -> float:
        if self.weather.bumpy and self.chance(self.weather.bumpy):
            return self.between(0.0, self.weather.longest)
        return self.between(0.0002, 0.002)

    def work_time(self) -> float:
        if self.weather.slow and self.chance(self.weather.slow):
            return self.between(0.0, self.weather.slowest)
        return self.between(0.0005, 0.004)

    def after(self, seconds: float, callback: Callable[..., None], *args: object) -> None:
        """Outside of all processes: it happens whoever dies."""
        self.loop.later(self.loop.world, seconds, callback, *args)

    async def hop(self) -> None:
        await asyncio.sleep(self.delay())
