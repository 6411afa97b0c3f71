"""Who was promised what: the events that callers sent, the answers that they got, and the runs that must follow."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from processors.ports.door import Answer, Outcome
from schemas.ids import run_id
from tests.simulation.bodies import Act, Script
from tests.simulation.installation import EVENT_TYPE, LOOSE_TYPE, PROJECT, URGENT_TYPE, snapshot
from tests.simulation.invariants import (
    ALL_ENDS,
    EXACT_OUTBOX,
    EXACT_RUNS,
    LANE_ORDER,
    RIGHT_OUTCOME,
    TOO_OLD,
    Invariants,
)
from tests.simulation.memory.tables import LiveRun, Tables
from tests.simulation.scenario import Scenario, Sending

MANUAL = "trg_manual"
TELLING_LOSSES = 3


@dataclass(slots=True)
class Promise:
    """`event_id` is the event that stands for the key; None until somebody was answered."""

    sending: Sending
    sent_at: float
    event_id: str | None = None
    answered_at: float | None = None


class Book:
    """`is_lossy` says that the broker lost something: then records that only Kafka had may be gone."""

    def __init__(self, scenario: Scenario, invariants: Invariants, now: Callable[[], float]) -> None:
        self._scenario = scenario
        self._invariants = invariants
        self._now = now
        self.promises: dict[int, Promise] = {}
        self.drawn: dict[str, int] = {}
        self.made: dict[int, list[LiveRun]] = {}
        self.cancelled: dict[str, None] = {}
        self.is_lossy = False
        self.stored: dict[str, str] = {}
        self._events: dict[int, str] = {}

    def script_of(self, text: str) -> Script:
        """By a run's input, or by what stands for it where that lies in storage."""
        if "data_ref" in text:
            text = self.stored[msgspec.json.decode(text)["data_ref"]]
        return self._scenario.scripts[int(text.removeprefix('{"script":').removesuffix("}"))]

    def begin(self, sending: Sending) -> Promise:
        promise = self.promises.get(sending.number)
        if promise is None:
            promise = self.promises[sending.number] = Promise(sending, self._now())
        return promise

    def draw(self, promise: Promise, event_id: str) -> None:
        """An event id that somebody made for this sending; at most one of them may make runs."""
        self.drawn[event_id] = promise.sending.number

    def answered(self, promise: Promise, answer: Answer) -> None:
        number = promise.sending.number
        if answer.outcome is Outcome.CONFLICT or self.drawn.get(answer.event_id) != number:
            self._invariants.fail(EXACT_RUNS, f"sending {number} is answered with {answer.outcome} {answer.event_id}")
        if promise.event_id not in {None, answer.event_id}:
            self._invariants.fail(EXACT_RUNS, f"sending {number} stands for {promise.event_id} and {answer.event_id}")
        promise.event_id = answer.event_id
        if promise.answered_at is None:
            promise.answered_at = self._now()

    def run_made(self, live: LiveRun) -> None:
        """Called when a run is made: by an event that somebody sent, the only one of its sending, in its turn."""
        run = live.run
        number = self.drawn.get(run.event_id)
        if number is None:
            self._invariants.fail(EXACT_RUNS, f"{run.run_id} is made of {run.event_id}, which nobody sent")
        if self._events.setdefault(number, run.event_id) != run.event_id:
            self._invariants.fail(EXACT_RUNS, f"sending {number} makes runs as two events, the second {run.event_id}")
        self.made.setdefault(number, []).append(live)
        if run.ordered and self.promises[number].sending.kind == "event":
            self._check_turn(number, live)

    def _check_turn(self, number: int, live: LiveRun) -> None:
        """Whatever was answered in this lane before this event was sent has its place already."""
        sent_at = self.promises[number].sent_at
        for other, promise in self.promises.items():
            is_before = promise.answered_at is not None and promise.answered_at < sent_at
            sending = promise.sending
            is_in_lane = sending.kind == "event" and not sending.is_loose and sending.lane == live.run.lane
            if is_before and is_in_lane and other not in self.made:
                message = f"sending {number} is made before {other}, which was answered before it was sent"
                self._invariants.fail(LANE_ORDER, message)

    # the end

    def open_promises(self, tables: Tables) -> list[str]:
        """What is not done yet, in words."""
        left = self._unsent(tables)
        for number, promise in self.promises.items():
            if promise.event_id is None and promise.sending.kind != "direct":
                left.append(f"sending {number} is not answered")
            for run in self._expected(promise):
                if run not in self._invariants.ended_runs:
                    state = self._invariants.live[run].state if run in self._invariants.live else "not made"
                    left.append(f"{run} of sending {number} is {state}")
        left += [f"{run} is {live.state}" for run, live in self._invariants.live.items()]
        return left

    def _expected(self, promise: Promise) -> list[str]:
        if promise.event_id is None:
            return []
        if promise.sending.kind == "manual":
            return [run_id(PROJECT, promise.event_id, MANUAL, 1)]
        if promise.sending.kind == "direct" and self.is_lossy:
            return []
        if promise.event_id in self._invariants.too_old:
            return []
        triggers = snapshot().by_event[PROJECT, type_of(promise.sending)]
        return [run_id(PROJECT, promise.event_id, trigger.trigger_id, 1) for trigger in triggers]

    def check_end(self, tables: Tables) -> None:
        left = self.open_promises(tables)
        if left:
            self._invariants.fail(_kind_of(left), "; ".join(left[:6]))
        for promise in self.promises.values():
            made = Counter(live.run.run_id for live in self.made.get(promise.sending.number, []))
            expected = Counter(self._expected(promise))
            if made != expected and not (promise.sending.kind == "direct" and self.is_lossy):
                self._invariants.fail(EXACT_RUNS, f"sending {promise.sending.number}: {made} for {expected}")
        for ended in self._invariants.ended_runs.values():
            self._check_outcome(ended.live, ended.state, ended.end.error.code if ended.end.error else None)

    def _unsent(self, tables: Tables) -> list[str]:
        at = (tables.shard.xid, tables.shard.id)
        return [f"row {place} is not published" for place in self._invariants.rows if place > at]

    def _check_outcome(self, live: LiveRun, state: str, code: str | None) -> None:
        run = live.run.run_id
        hopeless = any(act.is_hopeless for act in _acts(self.script_of(live.run.input)))
        is_expected = state == ("failed" if hopeless else "succeeded")
        is_late = code == "E_DEADLINE" and live.deadline_at is not None
        is_cancelled = state == "cancelled" and (run in self.cancelled or is_late)
        is_poison = code == "E_WORKER_CRASH_LOOP" and self._invariants.losses[run] >= TELLING_LOSSES
        is_stale = code == TOO_OLD and state == "failed"  # whether it may be is watched all the time
        if not (is_expected or is_cancelled or is_poison or is_stale):
            self._invariants.fail(RIGHT_OUTCOME, f"{run} ended as {state} {code}, its script fails: {hopeless}")
        if state == "succeeded":
            missing = [act.name for act in _acts(self.script_of(live.run.input)) if not self._is_done(run, act)]
            if missing:
                self._invariants.fail(RIGHT_OUTCOME, f"{run} succeeded without {missing}")

    def _is_done(self, run: str, act: Act) -> bool:
        return act.is_sleep or (run, act.name) in self._invariants.successes


def type_of(sending: Sending) -> str:
    """Of the event that it sends."""
    if sending.is_urgent:
        return URGENT_TYPE
    return LOOSE_TYPE if sending.is_loose else EVENT_TYPE


def _kind_of(left: list[str]) -> str:
    if any("not made" in one for one in left):
        return EXACT_RUNS
    return EXACT_OUTBOX if "not published" in left[0] else ALL_ENDS


def _acts(script: Script) -> list[Act]:
    return [act for branch in script for act in branch]
