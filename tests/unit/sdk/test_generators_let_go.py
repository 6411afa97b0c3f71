"""An asynchronous generator that is let go before its end is closed by the loop in which it began, whoever lets go."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from anthares44.automation import Context, step
from anthares44.automation.host.generators import watch_generators
from tests.unit.sdk import lives
from tests.unit.sdk.lives import at, new_run, told

Kept = list[AsyncGenerator[int, None]]


def asks(name: str) -> "asyncio.Future[Any]":
    return step.run(name, timeout=1, fn=lambda: name)


def begins_one(kept: Kept) -> Any:
    async def body(ctx: Context, _given: Any) -> Any:
        closed: list[str] = []

        async def asking() -> AsyncGenerator[int, None]:
            try:
                yield 1
            finally:
                closed.append(await asks("closing"))

        kept.append(asking())
        await anext(kept[-1])
        await asks("first")
        await asks("second")
        return closed

    return body


def test_generators_of_two_runs_that_go_outside_of_any_turn_are_closed_each_by_its_own():
    kept: Kept = []
    runs = [new_run(begins_one(kept), run=f"run_{n}", seed=f"seed_{n}") for n in range(2)]
    for run in runs:
        run.begin()
    kept.clear()
    for run in runs:
        asked = told(run.deliver(1, "first", "succeeded", at=at(1), value="1"))[1]
        assert sorted(asked) == ["step closing 1 after 1", "step second 1 after 1"]
        run.deliver(2, "closing", "succeeded", at=at(2), value='"closed"')
        ended = run.deliver(3, "second", "succeeded", at=at(3), value="2").ended
        assert ended == {"status": "succeeded", "value": '["closed"]'}


def test_a_generator_outside_of_bodies_is_closed_by_the_loop_that_runs_there():
    async def of_a_step(closed: asyncio.Event) -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.set()

    async def lets_go() -> None:
        loop, closed = asyncio.get_running_loop(), asyncio.Event()
        of_a_body: Kept = []
        loop.call_soon(watch_generators)
        await asyncio.sleep(0)
        generator = of_a_step(closed)
        await anext(generator)
        settings = lives.settings()
        settings.loop = loop
        loop.call_soon(new_run(begins_one(of_a_body), settings).begin)
        await asyncio.sleep(0)
        assert len(of_a_body) == 1
        del generator
        await asyncio.wait_for(closed.wait(), 10)

    asyncio.run(lets_go())
