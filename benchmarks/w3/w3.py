"""W3: three recorded no-op steps, the work that every figure is about."""

from anthares44.automation import step, workflow


async def noop():
    return {"ok": True}


@workflow("w3", version=1, trigger={"event": "bench.w3"}, queue="q_bench")
async def w3(ctx, input):
    await step.run("one", timeout="10s", fn=noop)
    await step.run("two", timeout="10s", fn=noop)
    await step.run("three", timeout="10s", fn=noop)
    return {"ok": True}
