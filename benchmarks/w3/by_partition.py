"""The same three steps where runs of one key go one after the other."""

from anthares44.automation import step, workflow


async def noop():
    return {"ok": True}


@workflow("w3-by-partition", version=1, trigger={"event": "bench.w3-by-partition"}, queue="q_bench_lanes")
async def w3_by_partition(ctx, input):
    await step.run("one", timeout="10s", fn=noop)
    await step.run("two", timeout="10s", fn=noop)
    await step.run("three", timeout="10s", fn=noop)
    return {"ok": True}
