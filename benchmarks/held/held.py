"""Runs that stay: one sleeps for hours, the other is in a step for minutes."""

import asyncio

from anthares44.automation import step, workflow


async def hold():
    await asyncio.sleep(600)


@workflow("sleeper", version=1, trigger={"event": "bench.sleeper"}, queue="q_held")
async def sleeper(ctx, input):
    await step.sleep("nap", "6h")


@workflow("holder", version=1, trigger={"event": "bench.holder"}, queue="q_held")
async def holder(ctx, input):
    await step.run("hold", timeout="900s", fn=hold)
