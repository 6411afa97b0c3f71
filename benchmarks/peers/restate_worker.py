"""Restate: the three steps as a workflow keyed by the run's id, served by hypercorn."""

import restate

w3 = restate.Workflow("W3")


async def noop() -> dict[str, bool]:
    return {"ok": True}


@w3.main()
async def run(ctx: restate.WorkflowContext, _asked: dict[str, str]) -> dict[str, bool]:
    for step in ("one", "two", "three"):
        await ctx.run_typed(step, noop)
    return {"ok": True}


app = restate.app([w3])
