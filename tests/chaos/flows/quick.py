import effects

from anthares44.automation import step, workflow


@workflow("quick", version=1, trigger={"event": "chaos.quick", "webhook": True})
async def quick(ctx, input):
    first = await step.run("first", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key))
    second = await step.run("second", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key))
    return {"first": first, "second": second}
