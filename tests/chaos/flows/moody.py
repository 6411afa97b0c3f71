import effects

from anthares44.automation import step, workflow


@workflow("moody", version=1, trigger={"event": "chaos.moody", "webhook": True})
async def moody(ctx, input):
    retry = {"max": 40, "base": "100ms", "cap": "500ms"}
    first = await step.run("first", timeout="60s", retry=retry, fn=lambda: effects.moody(ctx.idempotency_key))
    second = await step.run("second", timeout="60s", retry=retry, fn=lambda: effects.moody(ctx.idempotency_key))
    return {"first": first, "second": second}
