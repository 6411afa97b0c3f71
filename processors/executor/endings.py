"""The end of a run as a row: outcome, and the dead letter where it ended in error.

A dead letter says why by code and step; the message of an error may hold user data and is not in it.
"""

from datetime import datetime

from processors.engine.effects import End
from processors.engine.moves import RunStatus
from processors.engine.state import RunState, is_too_old
from processors.executor.live_run import LiveRun
from processors.ports.journal import RunEnd
from schemas.ids import dead_letter_id
from schemas.records import ErrorInfo, Status

CRASH_LOOP = "E_WORKER_CRASH_LOOP"
_IN_ERROR = frozenset({RunStatus.FAILED, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED})


def end_of(run: LiveRun, end: End, now: datetime) -> RunEnd:
    """`now` gives the dead letter's id its time."""
    claim, letter, reason, summary = run.claim, None, None, None
    if end.status in _IN_ERROR:
        letter = dead_letter_id(int(now.timestamp() * 1000))
        reason, summary = _why(run.state, end.error)
    return RunEnd(
        run_id=claim.run_id,
        project_id=claim.project_id,
        queue_id=claim.queue_id,
        lane=claim.lane,
        lane_seq=claim.lane_seq,
        state=end.status,
        result=end.value,
        error=end.error,
        dead_letter_id=letter,
        reason=reason,
        summary=summary,
    )


def _why(state: RunState, error: ErrorInfo | None) -> tuple[str, str]:
    """The classified reason, and one sentence without user data."""
    code = error.code if error else "E_STEP_FAILED"
    if is_too_old(error):
        return "event_too_old", f"the run got its turn when its event was too old: {code}"
    if code == CRASH_LOOP:
        return "max_attempts_exceeded", f"the run ended its step hosts again and again: {code}"
    for name, item in state.items.items():
        outcome = item.outcome
        if outcome is None or outcome.status is not Status.FAILED or outcome.error is None:
            continue
        if outcome.error.code == code:
            reason = "max_attempts_exceeded" if outcome.error.retryable else "permanent_error"
            return reason, f"step {name} failed with {code} on attempt {outcome.attempt}"
    return "permanent_error", f"the workflow ended with {code}"
