"""What must hold when all has ended. Each check names its rule and what it found; an empty answer is a clean one.

Pure: orders, history, ledger and what was heard go in, violations come out.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.history import Attempt, History, Run
from tests.chaos.ledger import Ledger
from tests.chaos.orders import Order

ENDED = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    seen: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """`heard` counts the ids on the run-events topic by an outside consumer."""

    orders: Sequence[Order]
    history: History
    ledger: Ledger
    heard: Mapping[str, int]
    refusals: Sequence[str] = ()


Check = Callable[[Evidence], Iterator[str]]


def check(evidence: Evidence) -> list[Violation]:
    return [Violation(rule, seen) for rule, look in CHECKS.items() for seen in look(evidence)]


# what was accepted is what ran


def never_accepted(evidence: Evidence) -> Iterator[str]:
    yield from evidence.refusals
    for order in evidence.orders:
        if order.accepted is None:
            yield f"{order.key} ({order.way}) was never accepted"


def accepted_is_one_run(evidence: Evidence) -> Iterator[str]:
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in evidence.history.runs:
        runs[run.key].append(run)
    for order in evidence.orders:
        found = runs.pop(order.key, [])
        if order.accepted is not None and len(found) != 1:
            yield f"{order.key} ({order.way}) was accepted and has {len(found)} runs"
        for run in found:
            if order.run_id not in (None, run.run_id) or order.event_id not in (None, run.event_id):
                yield f"{order.key} was promised {order.run_id or order.event_id} and became {run.run_id}"
            if run.workflow != f"wf_{order.workflow}":
                yield f"{order.key} asked for {order.workflow} and became a run of {run.workflow}"
    for key, strangers in runs.items():
        yield f"{len(strangers)} runs of {key}, which nobody asked for"


def every_run_ends_as_expected(evidence: Evidence) -> Iterator[str]:
    expected = {order.key: order.expected_state for order in evidence.orders}
    for run in evidence.history.runs:
        if run.state not in ENDED:
            yield f"{run.run_id} is still alive: {run.state}"
        elif run.state != expected.get(run.key, run.state):
            yield f"{run.run_id} ({run.workflow}) ended as {run.state} {run.error_code}, not as {expected[run.key]}"


def failures_are_dead_letters_once(evidence: Evidence) -> Iterator[str]:
    letters = Counter(run_id for run_id, _ in evidence.history.dead_letters)
    for run in evidence.history.runs:
        many = letters.pop(run.run_id, 0)
        if many != (run.state == "failed"):
            yield f"{run.run_id} is {run.state} and has {many} dead letters"
    for run_id, many in letters.items():
        yield f"{many} dead letters of {run_id}"


# effects


def committed_steps_have_their_effect(evidence: Evidence) -> Iterator[str]:
    for one in evidence.history.attempts:
        if one.kind != "step" or one.status != "succeeded":
            continue
        token = json.loads(one.result or "null")
        effort = evidence.ledger.efforts.get(token)
        if effort is None or effort.applied is None or effort.key != one.key:
            yield f"{one.key} succeeded at attempt {one.number} with {token}, and no effect in the ledger is that one"


def effects_repeat_only_where_told(evidence: Evidence) -> Iterator[str]:
    rows = {attempts[0].key: attempts for attempts in evidence.history.attempts_of_steps().values()}
    for key, efforts in evidence.ledger.of_key.items():
        applied = sum(effort.applied is not None for effort in efforts)
        attempts = rows.get(key, [])
        if applied and not attempts:
            yield f"{key} had {applied} effects, and no record of the service knows of it"
        explained = 1 + sum(one.status in ("lost", "failed") for one in attempts)
        if applied > explained or len(efforts) > explained:
            told = [f"{one.number} {one.status}" for one in attempts]
            yield f"{key} began {len(efforts)} times, had {applied} effects, and the records tell of {told}"


def results_are_those_of_the_steps(evidence: Evidence) -> Iterator[str]:
    of_run: dict[str, dict[str, object]] = defaultdict(dict)
    for (run_id, step), attempts in evidence.history.attempts_of_steps().items():
        for one in attempts:
            if one.status == "succeeded":
                of_run[run_id][step] = json.loads(one.result or "null")
    for run in evidence.history.runs:
        if (
            run.state == "succeeded"
            and run.workflow != "wf_nap"
            and json.loads(run.result or "null") != of_run[run.run_id]
        ):
            yield f"{run.run_id} answered {run.result}, and its steps {of_run[run.run_id]}"


# records


def attempts_are_numbered_without_holes(evidence: Evidence) -> Iterator[str]:
    for (run_id, step), attempts in evidence.history.attempts_of_steps().items():
        numbers = sorted(one.number for one in attempts)
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{run_id} {step} has attempts {numbers}"


def a_step_succeeds_once(evidence: Evidence) -> Iterator[str]:
    for (run_id, step), attempts in evidence.history.attempts_of_steps().items():
        numbers = [one.number for one in attempts if one.status == "succeeded"]
        if len(numbers) > 1:
            yield f"{run_id} {step} succeeded at attempts {numbers}"


def records_are_numbered_without_holes(evidence: Evidence) -> Iterator[str]:
    of_run: dict[str, list[Attempt]] = defaultdict(list)
    for one in evidence.history.attempts:
        of_run[one.run_id].append(one)
    for run_id, rows in of_run.items():
        if [one.seq for one in rows] != list(range(1, len(rows) + 1)):
            yield f"{run_id} has records {[one.seq for one in rows]}"


def lanes_keep_their_order(evidence: Evidence) -> Iterator[str]:
    """One after the other, by number. An empty lane is swept away after a while and begins again at 1."""
    lanes: dict[str, list[tuple[float, Run]]] = defaultdict(list)
    for run in evidence.history.runs:
        if run.lane_seq is not None and run.started is not None:
            lanes[run.lane].append((run.started, run))
    for lane, runs in lanes.items():
        runs.sort(key=lambda one: one[0])
        for (_, before), (started, after) in pairwise(runs):
            if after.lane_seq not in (1, 1 + (before.lane_seq or 0)):
                yield f"{lane}: number {after.lane_seq} ({after.run_id}) came after {before.lane_seq} ({before.run_id})"
            if before.ended is None or started < before.ended:
                yield f"{lane}: {after.run_id} began at {started}, and {before.run_id} ended at {before.ended}"


def nothing_is_held(evidence: Evidence) -> Iterator[str]:
    if evidence.history.slots_held:
        yield f"queues count {evidence.history.slots_held} runs that go on, and there is none"
    yield from (f"lane {lane} waits for somebody" for lane in evidence.history.lanes_open)


# announcements


def ends_are_announced_once(evidence: Evidence) -> Iterator[str]:
    told: dict[str, list[str]] = defaultdict(list)
    for event in evidence.history.announced:
        told[event.run_id].append(event.state)
    for run in evidence.history.runs:
        states = told.pop(run.run_id, [])
        if states != ([run.state] if run.state in ENDED else []):
            yield f"{run.run_id} is {run.state}, and the outbox announces {states}"
    for run_id, states in told.items():
        yield f"the outbox announces {states} of {run_id}, which is no run"
    for name, many in Counter(event.id for event in evidence.history.announced).items():
        if many > 1:
            yield f"the event {name} is {many} times in the outbox"


def announcements_reach_the_topic(evidence: Evidence) -> Iterator[str]:
    announced = {event.id for event in evidence.history.announced}
    for name in announced - set(evidence.heard):
        yield f"{name} is in the outbox, and nobody heard it on the topic"
    for name in set(evidence.heard) - announced:
        yield f"{name} was heard on the topic, and was never committed"


CHECKS: Mapping[str, Check] = {
    one.__name__: one
    for one in (
        never_accepted,
        accepted_is_one_run,
        every_run_ends_as_expected,
        failures_are_dead_letters_once,
        committed_steps_have_their_effect,
        effects_repeat_only_where_told,
        results_are_those_of_the_steps,
        attempts_are_numbered_without_holes,
        a_step_succeeds_once,
        records_are_numbered_without_holes,
        lanes_keep_their_order,
        nothing_is_held,
        ends_are_announced_once,
        announcements_reach_the_topic,
    )
}
