import asyncio

import effects

from anthares44.automation import step, workflow


@workflow("fan", version=1, trigger={"event": "chaos.fan", "webhook": True})
async def fan(ctx, input):
    names = [f"part-{number}" for number in range(3)]
    parts = [step.run(n, timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key, 0.05)) for n in names]
    tokens = dict(zip(names, await asyncio.gather(*parts), strict=True))
    await step.sleep("rest", "300ms")
    last = await step.run("last", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key))
    return {**tokens, "last": last}
