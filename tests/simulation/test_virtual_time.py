"""The simulation's loop: time without waiting, order within a process, processes that stop or die anywhere."""

import asyncio
import random
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation.virtual_time import Life, Process, SimulatedLoop, simulated


def play(loop: SimulatedLoop, story: Coroutine[Any, Any, Any]) -> None:
    asyncio.events._set_running_loop(None)  # pytest's own loop stands aside
    try:
        with simulated(loop, random.Random(1)):
            loop.run_until_complete(story)
    finally:
        loop.bury()
        loop.close()


def test_an_hour_passes_at_once_and_every_clock_tells_of_it() -> None:
    loop, told, began = SimulatedLoop(random.Random(1)), list[float](), time.monotonic()

    async def story() -> None:
        start = time.monotonic()
        await asyncio.sleep(3600)
        told.append(time.monotonic() - start)

    play(loop, story())
    assert told == [3600]
    assert time.monotonic() - began < 600
    assert time.monotonic.__module__ == "time"


def test_a_process_keeps_its_order_and_processes_take_turns_by_the_seed() -> None:
    orders = set()
    for seed in range(10):
        loop, told = SimulatedLoop(random.Random(seed)), list[str]()
        nodes = [Process("a"), Process("b")]

        async def count(name: str, told: list[str] = told) -> None:
            for number in range(3):
                told.append(f"{name}{number}")
                await asyncio.sleep(0)

        async def story(loop: SimulatedLoop = loop, nodes: list[Process] = nodes) -> None:
            await asyncio.gather(*(loop.spawn(node, count(node.name)) for node in nodes))

        play(loop, story())
        for name in "ab":
            assert [one for one in told if one[0] == name] == [f"{name}{n}" for n in range(3)]
        orders.add(tuple(told))
    assert len(orders) > 1


@pytest.mark.parametrize("life", [Life.DEAD, Life.PAUSED])
def test_nothing_of_a_process_runs_once_it_is_stopped(life: Life) -> None:
    loop, told, node = SimulatedLoop(random.Random(1)), list[str](), Process("node")

    async def work() -> None:
        try:
            for number in range(10):
                await asyncio.sleep(1)
                told.append(str(number))
        finally:
            if loop.is_running():
                told.append("cleaned up")

    async def story() -> None:
        loop.spawn(node, work())
        await asyncio.sleep(2.5)
        loop.stop_process(node, life)
        await asyncio.sleep(100)
        told.append("later")
        loop.resume_process(node)
        await asyncio.sleep(100)

    play(loop, story())
    before, rest = ["0", "1", "later"], [*map(str, range(2, 10)), "cleaned up"]
    assert told == (before if life is Life.DEAD else before + rest)


def test_a_simulation_in_which_nothing_can_happen_says_so() -> None:
    loop = SimulatedLoop(random.Random(1))
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        play(loop, asyncio.Event().wait())
