"""Read by mypy, never run: what a type checker knows of an author's code."""

import asyncio
from typing import assert_type

from anthares44.automation import Context, step, workflow


class Tenant:
    id: str


async def create(name: str) -> Tenant:
    raise NotImplementedError(name)


def count() -> int:
    return 1


@workflow("typed", version=1)
async def body(ctx: Context, given: dict[str, str]) -> dict[str, object]:
    tenant = await step.run("create", timeout="10s", fn=lambda: create(given["name"]))
    assert_type(tenant, Tenant)
    number = await step.run("count", timeout=5, retry={"max": 4, "base": "2s"}, fn=count)
    assert_type(number, int)
    both = await asyncio.gather(
        step.run("a", timeout="1s", fn=lambda: create("a")),
        step.run("b", timeout="1s", fn=lambda: "text"),
    )
    assert_type(both, tuple[Tenant, str])
    assert_type(await step.sleep("rest", "30s"), None)
    async for future in step.as_completed([step.run("c", timeout=1, fn=count)]):
        assert_type(await future, int)
    step.run("no-timeout", fn=count)  # type: ignore[call-overload]
    step.run("bad-retry", timeout=1, retry=3, fn=count)  # type: ignore[call-overload]
    assert_type(ctx.random(), float)
    return {"tenant": tenant.id, "at": ctx.now()}


async def unchanged(ctx: Context) -> None:
    assert_type(await body(ctx, {"name": "n"}), dict[str, object])
