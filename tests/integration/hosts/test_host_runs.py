"""Runs through real host processes: turns, outcomes, replay, many at once, large values."""

import json

from tests.integration.hosts.scripted import Scripted, Shelf

THREE = """
@workflow("t", version=1)
async def body(ctx, input):
    a = await step.run("a", timeout="5s", fn=lambda: input["n"] + 1)
    b = await step.run("b", timeout="5s", fn=lambda: a * 2)
    await step.sleep("nap", "1h")
    async def c(): return {"b": b, "key": ctx.idempotency_key}
    return await step.run("c", timeout="5s", fn=c)
"""


async def test_three_steps_and_a_sleep(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), input='{"n": 20}')
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert json.loads(story.end.value or "") == {"b": 42, "key": "run_1:c:g1"}
    assert [after for after, _ in story.turns] == [0, 1, 2, 3, 4]
    assert story.items() == ["a", "b", "nap", "c"]
