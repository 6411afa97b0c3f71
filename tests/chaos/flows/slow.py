import effects

from anthares44.automation import step, workflow


@workflow("slow", version=1, trigger={"event": "chaos.slow", "webhook": True})
async def slow(ctx, input):
    seconds = input["seconds"]
    first = await step.run("first", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key, seconds))
    second = await step.run("second", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key, seconds))
    return {"first": first, "second": second}
