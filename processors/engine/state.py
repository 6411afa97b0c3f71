"""The state of one run while somebody owns it.

Two parts. What the log says (`seq`, outcomes, timers, closing, ended) changes only by `fold_record`, so
folding the log gives it back. What the body told in this life (policies, attempts in flight, the last
turn) is not in the log, because everything in it can be asked again by replaying the body.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from processors.engine.requests import StepRequest
from schemas.records import RUN_ITEM, ErrorInfo, Kind, Record, Status


class Phase(StrEnum):
    """Where an item is. `IN_FLIGHT` is known in this life only; a fold never gives it."""

    WANTED = "wanted"
    IN_FLIGHT = "in_flight"
    RETRYING = "retrying"
    LOST = "lost"
    TIMER = "timer"
    SETTLED = "settled"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Item:
    """`attempt` is the last number taken, `failures` what counts against the policy's `max`."""

    kind: Kind
    after: int
    phase: Phase = Phase.WANTED
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    due: datetime | None = None
    request: StepRequest | None = None
    token: str | None = None
    outcome: Record | None = None
    first_seq: int = 0

    @property
    def resting_phase(self) -> Phase:
        """Where a step is that has not settled and has no attempt in flight."""
        if self.losses:
            return Phase.LOST
        return Phase.RETRYING if self.failures else Phase.WANTED


class Closing(msgspec.Struct, frozen=True, gc=False):
    """The run is about to end as `record` says: nothing new starts, what is in flight settles."""

    record: Record
    cancelled: bool


CANCELLED = "E_CANCELLED"
DEADLINE = "E_DEADLINE"
DEADLINE_TYPE = "DeadlinePassed"
TOO_OLD = "E_EVENT_TOO_OLD"
TOO_OLD_TYPE = "EventTooOld"


def cancels(error: ErrorInfo | None) -> bool:
    """Whether an end with this error is a cancellation, and no failure. The type tells our deadline from a step's own
    error of that code.
    """
    return error is not None and (error.code == CANCELLED or (error.code, error.type) == (DEADLINE, DEADLINE_TYPE))


def is_too_old(error: ErrorInfo | None) -> bool:
    """Whether a run ended because its event was too old, and not by a step's own error of that code."""
    return error is not None and (error.code, error.type) == (TOO_OLD, TOO_OLD_TYPE)


MOST_CRASHES = 5
# The host that a run shares, and the one that it shares with suspects after that, may have ended by a neighbour's
# doing. From its third on it is alone, and only that can tell.
FIRST_TELLING_CRASH = 3


@dataclass(slots=True)
class RunState:
    """`most_crashes` is the queue's `maxAttempts`.

    `told` and `heard`: seq of the last delivery to the body, and of the last one it answered (-1: none yet).

    `owner_lost`: what was in flight up to `resumed_at`, the last record when this body came back, is not known.
    """

    run_id: str
    generation: int = 1
    seq: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    closing: Closing | None = None
    ended: Record | None = None
    blocked: Record | None = None
    told: int = 0
    heard: int = -1
    body_started: bool = False
    body_ended: bool = False
    owner_lost: bool = False
    resumed_at: int = 0
    crashes: int = 0
    most_crashes: int = MOST_CRASHES
    in_flight: int = 0

    def guesses(self, seq: int) -> bool:
        """Whether what a body asks for after this delivery may have been in flight before."""
        return self.owner_lost and seq <= self.resumed_at

    def key_of(self, item: str) -> str:
        """The step's idempotency key: the same for every attempt, another in every generation."""
        return f"{self.run_id}:{item}:g{self.generation}"


def fold(run_id: str, generation: int, records: Iterable[Record]) -> RunState:
    """The state that a log gives."""
    state = RunState(run_id, generation)
    for record in records:
        fold_record(state, record)
    return state


def fold_record(state: RunState, record: Record) -> None:
    """The only way in which the logged part of a state changes."""
    if record.seq != state.seq + 1:
        raise ValueError(f"{state.run_id}: record {record.seq} after {state.seq}")
    state.seq = record.seq
    if record.item == RUN_ITEM:
        _fold_control(state, record)
        return
    item = state.items.get(record.item)
    if item is None:
        item = state.items[record.item] = Item(record.kind, record.after)
    if item.first_seq == 0:
        item.first_seq = record.seq
    _fold_item(item, record)


def _fold_control(state: RunState, record: Record) -> None:
    match record.status:
        case Status.CLOSING:
            state.closing = Closing(record, cancels(record.error))
        case Status.ENDED:
            state.ended = record
        case Status.BLOCKED:
            state.blocked = record
        case Status.UNBLOCKED:
            state.blocked = None
        case _:
            raise ValueError(f"{state.run_id}: a run record cannot be {record.status}")


def _fold_item(item: Item, record: Record) -> None:
    item.attempt = max(item.attempt, record.attempt)
    item.due = record.due
    match record.status:
        case Status.FAILED if not record.final:
            item.phase, item.failures, item.losses = Phase.RETRYING, item.failures + 1, 0
        case Status.SUCCEEDED | Status.FAILED | Status.SKIPPED:
            if item.phase is not Phase.ABANDONED:
                item.phase, item.outcome = Phase.SETTLED, record
        case Status.OPENED:
            item.phase = Phase.TIMER
        case Status.LOST:
            item.phase, item.losses = Phase.LOST, item.losses + 1
        case Status.CANCELLED:
            item.phase = Phase.ABANDONED
        case _:
            raise ValueError(f"item {record.item}: cannot be {record.status}")


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """An item as a body must see it again: settled ones are deliveries, the others are asked for again."""

    name: str
    item: Item
    seq: int
    outcome: Record | None


def history(state: RunState) -> Sequence[Recalled]:
    """What the body plays on resume, in order of seq.

    Outcomes behind the last delivery that it is known to have answered are not among the deliveries: it may have
    ended before it heard of them. They are delivered after its first turn, which asks for those items again.
    """
    last = _last_heard(state)
    recalled = []
    for name, item in state.items.items():
        outcome = item.outcome if item.outcome is not None and item.outcome.seq <= last else None
        if item.first_seq:
            recalled.append(Recalled(name, item, outcome.seq if outcome else item.first_seq, outcome))
    recalled.sort(key=lambda one: one.seq)
    return recalled


def _last_heard(state: RunState) -> int:
    """Something was asked for after this delivery, or the body ended with it. A skipped step that follows is part
    of it: it is awaited where it is asked for, and no body ends at it with others left.
    """
    if state.closing is not None:
        return state.closing.record.after
    last = max((item.after for item in state.items.values() if item.first_seq), default=0)
    outcomes = [item.outcome for item in state.items.values() if item.outcome is not None]
    for outcome in sorted(outcomes, key=lambda one: one.seq):
        if outcome.seq > last and outcome.status is not Status.SKIPPED:
            break
        last = max(last, outcome.seq)
    return last


def error_of(record: Record) -> ErrorInfo:
    """The error of a failed record; every failed record has one."""
    if record.error is None:
        raise ValueError(f"record {record.seq} carries no error")
    return record.error
