"""How a run rests and how it ends: parked, stuck, closing, ended."""

from collections.abc import Collection
from datetime import timedelta

from processors.engine.effects import Block, End, Park
from processors.engine.ledger import Ledger
from processors.engine.moves import Move, RunStatus, step
from processors.engine.requests import BodyEnd, BodyStatus
from processors.engine.state import CANCELLED, Phase, cancels
from schemas.records import ErrorInfo, Status

# A wait that is shorter than giving the slot back and getting it again is waited out in place.
WORTH_PARKING = timedelta(milliseconds=200)
_OPEN = frozenset({Phase.IN_FLIGHT, Phase.LOST, Phase.RETRYING, Phase.TIMER})


def end_of_body(ledger: Ledger, end: BodyEnd) -> None:
    """The body returned or raised. What it left in flight settles first; nothing new starts."""
    if ledger.state.closing is None:
        close(ledger, _error_of(end), end.value)


def _error_of(end: BodyEnd) -> ErrorInfo | None:
    """The outcome is told by the error alone, so that what `closing` says and what the end says cannot differ."""
    if end.status is BodyStatus.SUCCEEDED:
        return None
    if end.status is BodyStatus.CANCELLED and (end.error is None or end.error.code != CANCELLED):
        return ErrorInfo(CANCELLED, "Cancelled", "the workflow cancelled itself", retryable=False)
    if end.error is None:
        return ErrorInfo("E_STEP_FAILED", "BodyFailed", "the workflow failed without an error", retryable=False)
    return end.error


def close(ledger: Ledger, error: ErrorInfo | None, value: str | None = None) -> None:
    """Decide the outcome. Committed before what is in flight settles, so that a crash cannot change it."""
    state = ledger.state
    if state.in_flight == 0 and state.body_ended:
        _end(ledger, value, error)
    else:
        ledger.control(Status.CLOSING, value=value, error=error)


def finish(ledger: Ledger) -> None:
    """End a closing run now."""
    closing = ledger.state.closing
    if closing is None:
        raise ValueError(f"{ledger.state.run_id}: finish before closing")
    _end(ledger, closing.record.value, closing.record.error)


def outcome_of(error: ErrorInfo | None) -> RunStatus:
    if error is None:
        return step(RunStatus.RUNNING, Move.SUCCEED)
    return step(RunStatus.RUNNING, Move.CANCEL if cancels(error) else Move.FAIL)


def _end(ledger: Ledger, value: str | None, error: ErrorInfo | None) -> None:
    """The last record. What has not settled until now never will: it is recorded as cancelled."""
    for name, item in ledger.state.items.items():
        if item.phase in _OPEN:
            ledger.land(item)
            ledger.record(item.kind, name, item.attempt, Status.CANCELLED, item.after, final=True)
    ledger.control(Status.ENDED, value=value, error=error)
    ledger.effects.append(End(outcome_of(error), value, error))
    ledger.drop_body()


def rest(ledger: Ledger) -> None:
    """Where nothing is in flight and the body has answered: end, park, or find that nothing can wake it."""
    state = ledger.state
    if state.in_flight or state.ended is not None or state.blocked is not None or not state.body_started:
        return
    if state.closing is not None:
        if state.body_ended:
            finish(ledger)
        return
    if state.heard < state.told or state.body_ended:
        return
    waiting = [item for item in state.items.values() if item.phase in {Phase.RETRYING, Phase.TIMER}]
    dues = [item.due for item in waiting if item.due is not None]
    if not dues:
        _stuck(ledger)
    elif min(dues) > ledger.now + WORTH_PARKING:
        retrying = any(item.phase is Phase.RETRYING for item in waiting)
        status = step(RunStatus.RUNNING, Move.RETRY if retrying else Move.SLEEP)
        ledger.effects.append(Park(status, min(dues)))
        ledger.drop_body()


def block(ledger: Ledger, error: ErrorInfo) -> None:
    """The run cannot go on by itself. Its body is dropped, so what was in flight is lost."""
    step(RunStatus.RUNNING, Move.BLOCK)
    lose_flying(ledger)
    ledger.control(Status.BLOCKED, error=error)
    ledger.effects.append(Block(error))
    ledger.drop_body()


def lose_flying(ledger: Ledger, unbegun: Collection[str] = ()) -> None:
    """The body is gone, and with it what is known of the attempts in flight. Those that had not begun never were."""
    for name, item in ledger.state.items.items():
        if item.phase is Phase.IN_FLIGHT and name in unbegun:
            item.attempt, item.phase = item.attempt - 1, item.resting_phase
        elif item.phase is Phase.IN_FLIGHT:
            ledger.lose(name, item)
        ledger.land(item)


def _stuck(ledger: Ledger) -> None:
    message = (
        "the workflow waits for something that no step, sleep or timer can bring; "
        "await step.run or step.sleep, or set the awaited object from one of them"
    )
    block(ledger, ErrorInfo("E_BODY_STUCK", "BodyStuck", message, retryable=False))
