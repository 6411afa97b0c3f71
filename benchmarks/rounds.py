"""Which figures are measured, in which order. A round is a fresh stack that is asked for all of them in turn.

The bare path and W3 stand side by side in each round, so that their ratio is one of the same minute. A measurement
that fails is told, and the others go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from benchmarks import (
    measure_appends,
    measure_bare_path,
    measure_budget,
    measure_doors,
    measure_grants,
    measure_idle,
    measure_ingest,
    measure_memory,
    measure_w3,
)
from benchmarks.figures import Figures, Scale
from benchmarks.machine import machine
from benchmarks.peers import measure_peers
from ops.local import LocalOptions, LocalStack

Measure = Callable[[LocalStack, Scale], Awaitable[Figures]]
Note = Callable[[str], None]

ON_A_STACK: Mapping[str, Measure] = {
    "idle": measure_idle.measure,
    "floor": measure_bare_path.measure,
    "kafka": measure_w3.measure,
    "rest": measure_doors.measure_rest,
    **{way: partial(measure_peers.measure, way=way) for way in measure_peers.WAYS},
    "budget": measure_budget.measure,
    "appends": measure_appends.measure,
    "memory": measure_memory.measure,  # its runs stay
    "webhooks": measure_doors.measure_webhooks,  # from here on there is no executor
    "ingest": measure_ingest.measure,
    "grants": measure_grants.measure,
}
FAR_BEHIND = {"dbos_queue", "temporal_in_memory", "temporal_file"}  # peers for whom a whole benchmark has no time
LONGEST_SECONDS = 240.0  # of one measurement; one that hangs is a failed one
ONCE = {"grants"}  # in the last round: a million rows are filled in for it


@dataclass(slots=True)
class Seen:
    """`rounds` are what was measured, `failures` what was not, with the reason; `machine` is where."""

    rounds: list[Figures] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)


async def measure_all(rounds: int, names: Sequence[str], scale: Scale, note: Note) -> Seen:
    seen = Seen()
    for number in range(1, rounds + 1):
        wanted = [one for one in ON_A_STACK if one in names and (one not in ONCE or number == rounds)]
        seen.rounds.append({})
        with _told("the stack", seen):
            await _round(f"round {number} of {rounds}", wanted, scale, seen, note)
    return seen


async def _round(title: str, names: Sequence[str], scale: Scale, seen: Seen, note: Note) -> None:
    note(f"{title}: the stack starts")
    async with LocalStack(LocalOptions(environment=measure_w3.FULL)) as stack:
        await measure_w3.publish(stack)
        await measure_w3.saturated(stack, measure_w3.WARM_UP)
        seen.machine = await machine(stack)
        for name in names:
            note(f"{title}: {name}")
            with _told(name, seen):
                async with asyncio.timeout(LONGEST_SECONDS):
                    seen.rounds[-1] |= await ON_A_STACK[name](stack, scale)


@contextmanager
def _told(name: str, seen: Seen) -> Iterator[None]:
    """Whatever fails is told, and costs its own figures only."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001  see above
        seen.failures[name] = f"{type(exc).__name__}: {exc}"
