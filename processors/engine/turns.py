"""A turn: what the body asks for after a delivery, one small handler per request."""

from datetime import timedelta
from typing import assert_never

from processors.engine.commands import Turn
from processors.engine.effects import Arm, CancelStep
from processors.engine.endings import end_of_body, rest
from processors.engine.ledger import Ledger
from processors.engine.requests import (
    CancelRequest,
    Request,
    SkipRequest,
    SleepRequest,
    StepRequest,
    TimerRequest,
)
from processors.engine.state import Item, Phase
from schemas.records import Kind, Status


def turn(ledger: Ledger, command: Turn) -> None:
    """Register what the body asks for, start what may start, and see whether the run can rest."""
    state = ledger.state
    is_first, state.heard = state.heard < 0, command.after
    if is_first and state.seq:
        _tell_again(ledger, command.after)
    cancelled = state.closing is not None and state.closing.cancelled
    for request in command.requests:
        if cancelled:
            _late(ledger, request, command.after)
        else:
            _dispatch(ledger, request, command.after)
    if command.end is not None:
        state.body_ended = True
        end_of_body(ledger, command.end)
    rest(ledger)


def _dispatch(ledger: Ledger, request: Request, after: int) -> None:
    match request:
        case StepRequest():
            _step(ledger, request, after)
        case SleepRequest():
            _timer(ledger, request, Kind.SLEEP, after)
        case TimerRequest():
            _timer(ledger, request, Kind.TIMER, after)
        case SkipRequest():
            _skip(ledger, request, after)
        case CancelRequest():
            _abandon(ledger, request.target)
        case _:
            assert_never(request)


def _late(ledger: Ledger, request: Request, after: int) -> None:
    """The turn crossed the cancellation: nothing new starts, and what the body's side has started is stopped."""
    if isinstance(request, StepRequest) and request.started:
        _step(ledger, request, after)
        ledger.effects.append(CancelStep(request.item))


def _tell_again(ledger: Ledger, after: int) -> None:
    """Outcomes on record that the body has not answered yet, to a body that came back."""
    outcomes = [item.outcome for item in ledger.state.items.values() if item.outcome is not None]
    for outcome in sorted(outcomes, key=lambda one: one.seq):
        if outcome.seq > after:
            ledger.deliver(outcome, value=outcome.value)


def _asked_at(request: StepRequest | SleepRequest | TimerRequest | SkipRequest, after: int) -> int:
    return after if request.after is None else request.after


def _step(ledger: Ledger, request: StepRequest, after: int) -> None:
    state = ledger.state
    item = state.items.get(request.item)
    if item is None:
        item = state.items[request.item] = Item(Kind.STEP, _asked_at(request, after))
    # What became of its attempts is known for sure only where this owner has been asked for it before.
    is_guess = state.guesses(after) and item.request is None
    item.request = request
    if request.started and request.token is not None:
        ledger.fly(item, 1, request.token)
    elif item.phase is Phase.RETRYING and item.due is not None and item.due > ledger.now:
        ledger.effects.append(Arm(request.item, item.due))
    elif item.phase in {Phase.WANTED, Phase.LOST, Phase.RETRYING}:
        _launch(ledger, request.item, item, is_guess=is_guess)


def _launch(ledger: Ledger, name: str, item: Item, *, is_guess: bool) -> None:
    """Where the owner before was lost, this attempt may have been in flight: it is recorded as lost first."""
    if ledger.state.closing is not None and item.phase is Phase.RETRYING:
        return
    if is_guess:
        item.attempt += 1
        ledger.lose(name, item)
    ledger.launch(name, item)


def _timer(ledger: Ledger, request: SleepRequest | TimerRequest, kind: Kind, after: int) -> None:
    state, name = ledger.state, request.item
    item = state.items.get(name)
    if item is None:
        asked_at = _asked_at(request, after)
        item = state.items[name] = Item(kind, asked_at)
        due = ledger.now + timedelta(seconds=request.seconds)
        ledger.record(kind, name, 0, Status.OPENED, asked_at, final=False, due=due)
    if item.phase is not Phase.TIMER or item.due is None:
        return
    if item.due <= ledger.now:
        ledger.fire(name, item)
    else:
        ledger.effects.append(Arm(name, item.due))


def _skip(ledger: Ledger, request: SkipRequest, after: int) -> None:
    item = ledger.state.items.setdefault(request.item, Item(Kind.STEP, _asked_at(request, after)))
    if item.outcome is None:
        ledger.deliver(ledger.settle(request.item, item, Status.SKIPPED), value=None)


def _abandon(ledger: Ledger, name: str) -> None:
    """The body gave the item up. A late success is still recorded, and never delivered."""
    item = ledger.state.items.get(name)
    if item is None or item.phase in {Phase.SETTLED, Phase.ABANDONED}:
        return
    flying = item.token is not None
    ledger.record(item.kind, name, item.attempt, Status.CANCELLED, item.after, final=True)
    if flying:
        ledger.effects.append(CancelStep(name))
