"""One run while this executor owns it: its head row, its folded state, its armed timers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from processors.engine.state import RunState, history
from processors.ports.bodies import BodyStart, Past
from processors.ports.journal import Claim


@dataclass(slots=True, eq=False)
class LiveRun:
    """`resting` is set from the decision to park, block or end until its commit: nothing may be decided then.

    `committed` is the seq of its last record in the log, `shown` the last delivery that its body was handed (-1:
    no body yet), `withheld` how many attempts were decided and never begun, because this executor is stopping.
    """

    claim: Claim
    kind: str
    state: RunState
    committed: int
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    resting: bool = False
    shown: int = -1
    withheld: int = 0

    @property
    def run_id(self) -> str:
        return self.claim.run_id

    @property
    def is_unsure(self) -> bool:
        """Whether an attempt may be in flight: known of, begun by a body that has not answered yet, or from before."""
        state = self.state
        old = [item.outcome.seq for item in state.items.values() if item.outcome and state.guesses(item.outcome.seq)]
        is_guessing = state.owner_lost and state.heard < max(old, default=0)
        return state.in_flight > self.withheld or state.heard < self.shown or is_guessing

    def disarm(self) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def start(self, go_until: float) -> BodyStart:
        """What a body needs. After a lost owner it starts nothing by itself: what was in flight is recorded first."""
        claim, state = self.claim, self.state
        past = _pasts(state, claim.started_at) if state.seq else []
        self.shown = max([one.seq for one in past if one.outcome is not None], default=0)
        return BodyStart(
            run_id=claim.run_id,
            fence=claim.fence,
            project_id=claim.project_id,
            workflow_id=claim.workflow_id,
            definition_id=claim.definition_id,
            version=claim.version,
            kind=self.kind,
            generation=claim.generation,
            input=claim.input,
            started_at=claim.started_at,
            idempotency_key=claim.idempotency_key,
            partition_key=claim.partition_key,
            lane=claim.lane,
            event_id=claim.event_id,
            event_type=claim.event_type,
            occurred_at=claim.occurred_at,
            history=past,
            go_until=None if state.owner_lost else go_until,
            losses=state.crashes,
            input_ref=claim.input_ref,
        )


def _pasts(state: RunState, started_at: datetime) -> Sequence[Past]:
    return [
        Past(
            seq=one.seq,
            item=one.name,
            kind=one.item.kind,
            after=one.item.after,
            outcome=one.outcome.status if one.outcome else None,
            value=one.outcome.value if one.outcome else None,
            error=one.outcome.error if one.outcome else None,
            at=one.outcome.recorded_at if one.outcome and one.outcome.recorded_at else started_at,
        )
        for one in history(state)
    ]
