"""A run that has left: nothing holds it but who still uses it, and what its body left behind does no harm."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from anthares44.automation import Context, step
from anthares44.automation.errors import BlockedRun
from tests.unit.sdk.lives import at, new_run


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def three_steps(ctx: Context, _given: Any) -> str:
    await step.run("a", timeout=1, fn=lambda: 1)
    await asyncio.gather(step.run("b", timeout=1, fn=lambda: 2), step.run("c", timeout=1, fn=lambda: 3))
    return "done"


@pytest.mark.usefixtures("no_collector")
def test_a_run_that_has_ended_is_let_go_without_the_collector():
    run = new_run(three_steps)
    run.begin()
    turns = [run.deliver(seq, item, "succeeded", at=at(seq), value="1") for seq, item in enumerate("abc", 1)]
    assert turns[-1].ended is not None
    gone = weakref.ref(run.loop)
    run.forget()
    del run
    assert gone() is None


def test_a_future_that_outlives_its_run_can_be_cancelled_and_its_loop_asks_for_nothing():
    kept: list[asyncio.Future[Any]] = []

    async def keeps(ctx: Context, _given: Any) -> None:
        kept.append(step.run("a", timeout=1, fn=lambda: 1))
        await kept[0]

    run = new_run(keeps)
    run.begin()
    run.forget()
    assert kept[0].cancel()
    with pytest.raises(BlockedRun):
        kept[0].get_loop().call_later(1.0, print)
