"""How a run rests and how it ends: parked, stuck, closing, ended."""

from processors.engine.effects import Block, DropBody, End, Park
from processors.engine.ledger import Ledger
from processors.engine.moves import Move, RunStatus, step
from processors.engine.requests import BodyEnd, BodyStatus
from processors.engine.state import Phase
from schemas.records import ErrorInfo, Kind, Status

_ENDINGS = {
    BodyStatus.SUCCEEDED: Move.SUCCEED,
    BodyStatus.FAILED: Move.FAIL,
    BodyStatus.CANCELLED: Move.CANCEL,
}


def end_of_body(ledger: Ledger, end: BodyEnd) -> None:
    """The body returned or raised. What it left in flight settles first; nothing new starts."""
    state = ledger.state
    if state.closing is None:
        close(ledger, step(RunStatus.RUNNING, _ENDINGS[end.status]), end.error, end.value)


def close(ledger: Ledger, status: RunStatus, error: ErrorInfo | None, value: str | None = None) -> None:
    """Decide the outcome. Committed before what is in flight settles, so that a crash cannot change it."""
    state = ledger.state
    if state.in_flight == 0 and state.body_ended:
        _end(ledger, status, value, error)
    else:
        ledger.control(Status.CLOSING, value=value, error=error)


def finish(ledger: Ledger) -> None:
    """End a closing run now; attempts that did not settle are recorded as cancelled."""
    state = ledger.state
    if state.closing is None:
        raise ValueError(f"{state.run_id}: finish before closing")
    for name, item in state.items.items():
        if item.phase in {Phase.IN_FLIGHT, Phase.LOST, Phase.RETRYING}:
            ledger.land(item)
            ledger.record(Kind.STEP, name, item.attempt, Status.CANCELLED, item.after, final=True)
    record = state.closing.record
    _end(ledger, outcome_of(record.error), record.value, record.error)


def outcome_of(error: ErrorInfo | None) -> RunStatus:
    if error is None:
        return step(RunStatus.RUNNING, Move.SUCCEED)
    return step(RunStatus.RUNNING, Move.CANCEL if error.code == "E_CANCELLED" else Move.FAIL)


def _end(ledger: Ledger, status: RunStatus, value: str | None, error: ErrorInfo | None) -> None:
    ledger.control(Status.ENDED, value=value, error=error)
    ledger.effects += [End(status, value, error), DropBody()]


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
    elif min(dues) > ledger.now:
        retrying = any(item.phase is Phase.RETRYING for item in waiting)
        status = step(RunStatus.RUNNING, Move.RETRY if retrying else Move.SLEEP)
        ledger.effects += [Park(status, min(dues)), DropBody()]


def _stuck(ledger: Ledger) -> None:
    error = ErrorInfo(
        "E_BODY_STUCK",
        "BodyStuck",
        "the workflow waits for something that no step, sleep or timer can bring; "
        "await step.run or step.sleep, or set the awaited object from one of them",
        retryable=False,
    )
    ledger.control(Status.BLOCKED, error=error)
    ledger.effects += [Block(error), DropBody()]
