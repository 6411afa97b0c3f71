import effects

from anthares44.automation import PermanentError, step, workflow


def refuse():
    raise PermanentError("the card was declined", code="E_CARD_DECLINED")


@workflow("declined", version=1, trigger={"event": "chaos.declined", "webhook": True})
async def declined(ctx, input):
    await step.run("first", timeout="60s", fn=lambda: effects.effect(ctx.idempotency_key))
    await step.run("charge", timeout="60s", fn=refuse)
