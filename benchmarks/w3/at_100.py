"""The same three steps at the default limit of a queue, where the end of a run hands its slot on."""

from anthares44.automation import step, workflow


async def noop():
    return {"ok": True}


@workflow("w3-at-100", version=1, trigger={"event": "bench.w3-at-100"})
async def w3_at_100(ctx, input):
    await step.run("one", timeout="10s", fn=noop)
    await step.run("two", timeout="10s", fn=noop)
    await step.run("three", timeout="10s", fn=noop)
    return {"ok": True}
