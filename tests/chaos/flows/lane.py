import effects

from anthares44.automation import step, workflow


@workflow(
    "lane",
    version=1,
    concurrency={"max": 60, "partition_key": "{{ input.lane }}"},
    trigger={"event": "chaos.lane", "webhook": True},
)
async def lane(ctx, input):
    first = await step.run("first", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key, 0.02))
    second = await step.run("second", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key))
    return {"first": first, "second": second}
