"""What the service has on record when all is over, read once: runs, attempts, what was announced, what is left open."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from schemas.run_events import RunEvent, decode_run_event
from tests.chaos.looker import Looker

RUNS = """
select run_id, workflow_id, state, idempotency_key, event_id, queue_id || '/' || lane, lane_seq,
       extract(epoch from created_at)::float8, extract(epoch from started_at)::float8,
       extract(epoch from ended_at)::float8, result, error_code
  from automation.runs
"""
ATTEMPTS = """
select run_id, seq, kind, step_id, attempt, status, idempotency_key, error_code, result,
       extract(epoch from recorded_at)::float8, extract(epoch from due_at)::float8
  from automation.step_attempts
 order by run_id, generation, seq
"""
OUTBOX = "select value from automation.outbox where topic = 'a44.run-events.v1'"
LETTERS = "select run_id, error_code from automation.dead_letters"
RUNNING = """
select coalesce(sum(running), 0)::bigint + (select coalesce(sum(delta), 0)::bigint from automation.queue_deltas)
  from automation.queues
"""
LANES = "select lane from automation.lanes where head_seq <> tail_seq"
LATE = "select count(*) from automation.late_attempts"


class Run(msgspec.Struct, gc=False):
    """A run; `lane` names queue and partition. Times are seconds of the epoch, by the database's clock."""

    run_id: str
    workflow: str
    state: str
    key: str
    event_id: str
    lane: str
    lane_seq: int | None
    created: float
    started: float | None
    ended: float | None
    result: str | None
    error_code: str | None


class Attempt(msgspec.Struct, gc=False):
    run_id: str
    seq: int
    kind: str
    step: str
    number: int
    status: str
    key: str | None
    error_code: str | None
    result: str | None
    recorded: float
    due: float | None


@dataclass(slots=True)
class History:
    """`announced` are the run events in the outbox, one for each row."""

    runs: list[Run]
    attempts: list[Attempt]
    announced: list[RunEvent]
    dead_letters: list[tuple[str | None, str]]
    slots_held: int = 0
    lanes_open: list[str] = field(default_factory=list)
    late: int = 0

    def attempts_of_steps(self) -> dict[tuple[str, str], list[Attempt]]:
        """Rows of steps by run and step, in their order."""
        found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        for one in self.attempts:
            if one.kind == "step":
                found[one.run_id, one.step].append(one)
        return found


async def read(looker: Looker) -> History:
    values = await looker.rows(OUTBOX)
    return History(
        runs=[Run(*row) for row in await looker.rows(RUNS)],
        attempts=[Attempt(*row) for row in await looker.rows(ATTEMPTS)],
        announced=[decode_run_event(bytes(value)) for (value,) in values],
        dead_letters=await looker.rows(LETTERS),
        slots_held=await looker.one(RUNNING),
        lanes_open=[lane for (lane,) in await looker.rows(LANES)],
        late=await _late(looker),
    )


async def _late(looker: Looker) -> int:
    known: Any = await looker.one("select to_regclass('automation.late_attempts')::text")
    return int(await looker.one(LATE)) if known else 0
