"""Where a run is, in one plain sentence: at which step, with which error, from where it can go on.

Pure: it words what the log says, and adds nothing that the log does not hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from processors.engine.moves import RunStatus
from processors.engine.state import DEADLINE
from processors.ports.run_queries import AcceptedRun, Attempt, QueuePlace, Run
from schemas.records import ErrorInfo, Status

_SETTLED = frozenset({Status.SUCCEEDED, Status.CANCELLED, Status.SKIPPED})
_STANDING = frozenset({Status.FAILED, Status.LOST, Status.OPENED})
_MANY = 1000  # predecessors are counted so far


@dataclass
class Place:
    """What the sentence is worded from, beside the run's head. `attempts` are in their order."""

    now: datetime
    attempts: Sequence[Attempt] = ()
    queue: QueuePlace | None = None


def standing_at(run: Run, attempts: Sequence[Attempt]) -> Attempt | None:
    """The last record of a step that did not succeed (after it): where the run stands. A step that was lost and then
    called off by the end of its run is where that run ended.
    """
    if run.state in (RunStatus.SUCCEEDED, RunStatus.COMPENSATED):
        return None
    settled: set[str] = set()
    called_off: set[str] = set()
    in_ending = any(attempt.status == Status.CLOSING for attempt in attempts)
    for attempt in reversed(attempts):
        in_ending = in_ending and attempt.status != Status.CLOSING
        if attempt.generation != run.generation or attempt.step_id.startswith("~"):
            continue
        if attempt.status == Status.LOST and attempt.step_id in called_off:
            return attempt
        if in_ending and attempt.status == Status.CANCELLED:
            called_off.add(attempt.step_id)
        if attempt.status in _SETTLED:
            settled.add(attempt.step_id)
        elif attempt.status in _STANDING and attempt.step_id not in settled:
            return attempt
    return None


def sentence(run: Run | AcceptedRun, place: Place) -> str:
    if isinstance(run, AcceptedRun):
        return f"Accepted {_span(run.accepted_at, place.now)} ago; it waits for ingest to make the run."
    worded = _words(run, place)
    if run.cancel_requested and run.ended_at is None:
        worded += " Its cancellation was asked for and is under way."
    if run.deadline_at is not None and run.ended_at is None:
        worded += f" Its deadline is {run.deadline_at:%Y-%m-%d %H:%M:%S} UTC."
    return worded


def _words(run: Run, place: Place) -> str:
    at = standing_at(run, place.attempts)
    if run.ended_at is not None:
        return _ended(run, at)
    match run.state:
        case RunStatus.PENDING:
            return _pending(run, place.queue)
        case RunStatus.RUNNING:
            return _running(run, at, place.attempts)
        case RunStatus.BLOCKED:
            return _blocked(run, place.attempts)
        case _:
            return _plain(run, at)


def _plain(run: Run, at: Attempt | None) -> str:
    """The states that one step and one time tell all about."""
    step, until = _step(at), _until(run.visible_at)
    return {
        RunStatus.GRANTED: "Granted; it waits for an executor with room to take it.",
        RunStatus.SLEEPING: f"Sleeps{step}{_until(run.visible_at, 'until')}; its slot is free for others meanwhile.",
        RunStatus.RETRYING: f"{_failed(at)}; it is tried again{until}.",
        RunStatus.WAITING: f"Waits{step} for something from outside{_until(run.visible_at, 'until')}.",
        RunStatus.COMPENSATING: f"{_failed(at)}; what was done before is being undone, newest first.",
        RunStatus.AWAITING_CONFIRMATION: f"Stands{step}: whether it took effect is unknown, a person has to say.",
    }[RunStatus(run.state)]


def _pending(run: Run, place: QueuePlace | None) -> str:
    if place is None:
        return f"Waits in the queue {run.queue_id}."
    if place.ahead:
        count = f"{_MANY} or more" if place.ahead >= _MANY else str(place.ahead)
        return f"Waits for its turn: {count} before it in the lane {run.lane!r} of {run.queue_id}."
    if place.running >= place.max_concurrency:
        return f"Waits for a free slot: {place.running} of {place.max_concurrency} run in {run.queue_id}."
    return f"Ready in the queue {run.queue_id} ({place.running} of {place.max_concurrency} run); it is granted next."


def _running(run: Run, at: Attempt | None, attempts: Sequence[Attempt]) -> str:
    closing = next((one for one in reversed(attempts) if one.status == Status.CLOSING), None)
    if closing is not None and closing.generation == run.generation:
        return f"Is being ended ({closing.error_code}): what is in flight, and the body, have some seconds to stop."
    if at is not None and at.status != Status.OPENED:
        return f"{_failed(at)}; it is being tried again."
    done = [one.step_id for one in attempts if _is_done(run, one)]
    return f"Running; the last step that is recorded as done is {done[-1]!r}." if done else "Running its first step."


def _blocked(run: Run, attempts: Sequence[Attempt]) -> str:
    code = next((one.error_code for one in reversed(attempts) if one.status == Status.BLOCKED), run.error_code)
    why = f" ({code})" if code else ""
    return f"Blocked{why}: it cannot go on by itself; cancel it, and start it again with a new key once it is mended."


def _ended(run: Run, at: Attempt | None) -> str:
    if run.state == RunStatus.SUCCEEDED:
        return "Succeeded."
    code = f" with {run.error_code}" if run.error_code else ""
    match run.state:
        case RunStatus.CANCELLED:
            why = " by its deadline" if run.error_code == DEADLINE else ""
            return f"Cancelled{why}{'' if at is None else f' while at the step {at.step_id!r}'}."
        case RunStatus.COMPENSATED:
            return f"Failed{code}; what it had done was undone."
        case RunStatus.COMPENSATION_FAILED:
            return f"Failed{code}, and undoing failed too: it has left partial effects that a person has to mend."
    if at is None or (at.status == Status.FAILED and at.error_code != run.error_code):  # that one the workflow caught
        return f"Failed{code} outside any step; mend the workflow and start it again with a new key."
    last = "which is not tried again" if _is_permanent(at) else "the last of its tries"
    return (
        f"{_failed(at)}, {last}; the steps before it are done and their results recorded. "
        "Mend what failed, and redrive its dead letter or start it again with a new key."
    )


def _failed(at: Attempt | None) -> str:
    if at is None:
        return "A step failed"
    if at.status == Status.LOST:
        return f"The step {at.step_id!r} was lost with its worker at attempt {at.attempt}"
    code = f" with {at.error_code}" if at.error_code else ""
    return f"The step {at.step_id!r} failed{code} at attempt {at.attempt}"


def _is_permanent(at: Attempt) -> bool:
    """Whether the step's own error said that another try is of no use."""
    try:
        return at.error is not None and not msgspec.json.decode(at.error, type=ErrorInfo).retryable
    except msgspec.DecodeError:
        return False


def _is_done(run: Run, attempt: Attempt) -> bool:
    return (
        attempt.generation == run.generation
        and attempt.status == Status.SUCCEEDED
        and not attempt.step_id.startswith("~")
    )


def _step(at: Attempt | None) -> str:
    return "" if at is None else f" at the step {at.step_id!r}"


def _until(moment: datetime | None, word: str = "at") -> str:
    return "" if moment is None else f" {word} {moment:%Y-%m-%d %H:%M:%S} UTC"


def _span(since: datetime, now: datetime) -> str:
    return f"{max((now - since).total_seconds(), 0.0):.1f} s"
