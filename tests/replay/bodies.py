"""Bodies whose histories are kept: they must be played for ever as they were. Add bodies; never change one."""

import asyncio
from typing import Any

from anthares44.automation import Context, StepError, step


def run(name: str, **more: Any) -> "asyncio.Future[Any]":
    return step.run(name, **({"timeout": "30s", "fn": lambda: name} | more))


async def onboard(ctx: Context, given: Any) -> Any:
    tenant = await run("create-tenant", timeout="10s")
    await run("provision-db", timeout="120s", retry={"max": 4}, compensate=print)
    await step.sleep("cooldown", "30s")
    return {"tenant": tenant, "for": given["name"], "at": ctx.now(), "draw": ctx.random(), "id": ctx.uuid()}


async def fulfil(ctx: Context, given: Any) -> Any:
    """Parallel parts, one of which is late, one of which fails and is made good."""
    places = asyncio.Semaphore(2)
    draws: list[float] = []

    async def part(name: str) -> str:
        async with places:
            try:
                async with asyncio.timeout(20):
                    kept = await run(f"reserve-{name}")
                    draws.append(ctx.random())
                    return f"{kept} {await run(f'pack-{name}')}"
            except TimeoutError:
                return f"late {await run(f'release-{name}')}"
            except StepError as error:
                return f"{error.code} {await run(f'replace-{name}')}"

    async with asyncio.TaskGroup() as group:
        parts = [group.create_task(part(name)) for name in ("book", "lamp", "chair")]
    notice = asyncio.shield(run("notice"))
    seen = [await outcome async for outcome in step.as_completed([run("ship"), run("bill")])]
    await step.sleep("rest", "1h")
    return {"parts": [part.result() for part in parts], "notice": await notice, "seen": seen, "draws": draws}


async def fastest(ctx: Context, given: Any) -> Any:
    """The first of several wins; the others are let go."""
    offers = [run(f"ask-{n}") for n in range(3)]
    done, pending = await asyncio.wait(offers, return_when=asyncio.FIRST_COMPLETED)
    for offer in pending:
        offer.cancel()
    winner = await done.pop()
    try:
        await asyncio.wait_for(run("order"), 60)
    except TimeoutError:
        winner = await run("order-by-phone")
    return [winner, len(pending), asyncio.get_running_loop().time()]


BODIES = {body.__name__: body for body in (onboard, fulfil, fastest)}
