"""`decide(state, command, now, roll)`: what a command does to a run, as records and effects.

Pure: no clock (`now` is given), no dice (`roll` in [0, 1) is given), no await, no driver. Records are
folded into `state` at once, so the next command may be decided before the first is committed; whoever
loses its session throws the state away. Effects say by their class when they may happen.
"""

from datetime import datetime, timedelta
from typing import assert_never

from processors.engine import turns
from processors.engine.commands import (
    BodyLost,
    Cancel,
    Claimed,
    Command,
    DeadlinePassed,
    Diverged,
    Done,
    Due,
    Failed,
    TooOld,
    Turn,
)
from processors.engine.effects import Arm, Block, CancelStep, CloseBody, StartBody
from processors.engine.endings import block, close, finish, lose_flying, rest
from processors.engine.ledger import Ledger
from processors.engine.state import (
    CANCELLED,
    DEADLINE,
    DEADLINE_TYPE,
    FIRST_TELLING_CRASH,
    TOO_OLD,
    TOO_OLD_TYPE,
    Item,
    Phase,
    RunState,
    error_of,
)
from schemas.records import ErrorInfo, Kind, Status

CLOSE_GRACE = timedelta(seconds=10)
CLOSE_TIMER = "~close"


def decide(state: RunState, command: Command, now: datetime, roll: float) -> Ledger:
    """Decide one command. A run that has ended or is blocked answers nothing to anything."""
    ledger = Ledger(state, now, roll)
    if state.ended is None and (state.blocked is None or isinstance(command, Claimed | Cancel | DeadlinePassed)):
        _dispatch(ledger, command)
    return ledger


def _dispatch(ledger: Ledger, command: Command) -> None:
    match command:
        case Done():
            _done(ledger, command)
        case Turn():
            turns.turn(ledger, command)
        case Claimed():
            _claimed(ledger, command)
        case Failed():
            _failed(ledger, command)
        case Due():
            _due(ledger, command)
        case BodyLost():
            _body_lost(ledger, command)
        case Diverged():
            _diverged(ledger, command.error)
        case Cancel() | TooOld() | DeadlinePassed():
            _stop(ledger, _why(command))
        case _:
            assert_never(command)


def _why(command: Cancel | TooOld | DeadlinePassed) -> ErrorInfo:
    match command:
        case Cancel():
            return ErrorInfo(CANCELLED, "Cancelled", f"cancelled by {command.actor}: {command.reason}", retryable=False)
        case TooOld():
            message = (
                f"its event was wanted until {command.since.isoformat(timespec='milliseconds')}; nothing was begun"
            )
            return ErrorInfo(TOO_OLD, TOO_OLD_TYPE, message, retryable=False)
        case DeadlinePassed():
            message = f"the run had not ended by its deadline, {command.at.isoformat(timespec='milliseconds')}"
            return ErrorInfo(DEADLINE, DEADLINE_TYPE, message, retryable=False)


def _claimed(ledger: Ledger, command: Claimed) -> None:
    state = ledger.state
    state.owner_lost = command.owner_lost
    if state.blocked is not None:
        ledger.effects.append(Block(error_of(state.blocked)))
    elif _is_cancelled(state):
        finish(ledger)
    elif command.owner_lost and _is_hopeless(state):
        _lose_again(ledger)
        _give_up(ledger, "the executor that owned it was lost each time")
    else:
        _start_body(ledger)


def _is_cancelled(state: RunState) -> bool:
    return state.closing is not None and state.closing.cancelled


def _start_body(ledger: Ledger) -> None:
    state = ledger.state
    state.body_started, state.body_ended, state.heard, state.told = True, False, -1, 0
    state.resumed_at = state.seq
    ledger.effects.append(StartBody())


def _running(state: RunState, name: str, attempt: int, token: str) -> Item | None:
    """The item whose attempt this is; None when the attempt belongs to another life."""
    item = state.items.get(name)
    if item is None or item.token != token or item.attempt != attempt:
        return None
    return item


def _done(ledger: Ledger, command: Done) -> None:
    state = ledger.state
    item = _running(state, command.item, command.attempt, command.token)
    if item is None:
        return
    abandoned = item.phase is Phase.ABANDONED
    ledger.land(item)
    state.crashes = 0
    name = command.item
    record = ledger.settle(name, item, Status.SUCCEEDED, command.value, command.cost, state.key_of(name))
    if not abandoned:
        ledger.deliver(record, value=None)
    rest(ledger)


def _failed(ledger: Ledger, command: Failed) -> None:
    state = ledger.state
    item = _running(state, command.item, command.attempt, command.token)
    if item is None or item.request is None:
        return
    abandoned = item.phase is Phase.ABANDONED
    ledger.land(item)
    state.crashes = 0
    if abandoned:
        rest(ledger)
        return
    policy, error = item.request.retry, command.error
    again = error.retryable and item.failures + 1 < policy.max and state.closing is None
    due = ledger.now + ledger.delay(policy, item.failures + 1, error.retry_after) if again else None
    record = ledger.record(
        Kind.STEP,
        command.item,
        item.attempt,
        Status.FAILED,
        item.after,
        final=not again,
        due=due,
        error=error,
        cost=command.cost,
        key=state.key_of(command.item),
    )
    if due is not None:
        ledger.effects.append(Arm(command.item, due))
    else:
        ledger.deliver(record, value=None)
    rest(ledger)


def _due(ledger: Ledger, command: Due) -> None:
    state = ledger.state
    if command.item == CLOSE_TIMER:
        if state.closing is not None:
            finish(ledger)
        return
    item = state.items.get(command.item)
    if item is None or item.due is None or state.closing is not None or state.heard < 0:
        return  # a body that comes back asks again for whatever waits, and hears at once of what is due
    if item.due > ledger.now:
        ledger.effects.append(Arm(command.item, item.due))  # the timer of a process may fire a little early
    elif item.phase is Phase.TIMER:
        ledger.fire(command.item, item)
    elif item.phase is Phase.RETRYING and item.request is not None:
        ledger.launch(command.item, item)


def _body_lost(ledger: Ledger, command: BodyLost) -> None:
    """The attempts in flight are lost; the body comes back elsewhere, unless it kills every host."""
    state = ledger.state
    if not state.body_started:
        return
    lose_flying(ledger, command.unbegun)
    state.crashes += command.suspected
    if _is_hopeless(state):
        _give_up(ledger, command.reason)
    elif _is_cancelled(state):
        finish(ledger)
    else:
        state.owner_lost = True
        _start_body(ledger)


def _is_hopeless(state: RunState) -> bool:
    return state.crashes >= max(state.most_crashes, FIRST_TELLING_CRASH)


def _lose_again(ledger: Ledger) -> None:
    """Without a body nobody tells what was in flight; steps that were lost before were tried again first of all."""
    for name, item in ledger.state.items.items():
        if item.phase is Phase.LOST:
            item.attempt += 1
            ledger.lose(name, item)


def _give_up(ledger: Ledger, reason: str) -> None:
    """The run takes its worker with it each time."""
    state = ledger.state
    if state.closing is None:
        message = f"its worker ended {state.crashes} times in a row while this run was in it: {reason}"
        close(ledger, ErrorInfo("E_WORKER_CRASH_LOOP", "WorkerCrashLoop", message, retryable=False))
    finish(ledger)


def _diverged(ledger: Ledger, error: ErrorInfo) -> None:
    """Blocked until somebody mends it; a cancelled run needs no body to end."""
    if _is_cancelled(ledger.state):
        finish(ledger)
    else:
        block(ledger, error)


def _stop(ledger: Ledger, why: ErrorInfo) -> None:
    """Without a body the run ends at once; with one, the body may clean up, for a while."""
    state = ledger.state
    if state.closing is not None:
        if state.blocked is not None:
            finish(ledger)
        return
    close(ledger, why)
    if not state.body_started:
        finish(ledger)
        return
    ledger.effects.extend(CancelStep(name) for name, item in state.items.items() if item.phase is Phase.IN_FLIGHT)
    ledger.effects.extend((CloseBody(why.message), Arm(CLOSE_TIMER, ledger.now + CLOSE_GRACE)))
