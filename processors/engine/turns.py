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
    state.heard = command.after
    for request in command.requests:
        _dispatch(ledger, request, command.after)
    state.resuming = False
    state.owner_lost = False
    if command.end is not None:
        state.body_ended = True
        end_of_body(ledger, command.end)
    rest(ledger)


def _dispatch(ledger: Ledger, request: Request, after: int) -> None:
    match request:
        case StepRequest():
            _step(ledger, request, after)
        case SleepRequest():
            _timer(ledger, request.item, Kind.SLEEP, request.seconds, after)
        case TimerRequest():
            _timer(ledger, request.item, Kind.TIMER, request.seconds, after)
        case SkipRequest():
            _skip(ledger, request.item, after)
        case CancelRequest():
            _abandon(ledger, request.target)
        case _:
            assert_never(request)


def _step(ledger: Ledger, request: StepRequest, after: int) -> None:
    state = ledger.state
    item = state.items.get(request.item)
    if item is None:
        item = state.items[request.item] = Item(Kind.STEP, after)
    item.request = request
    if request.started and request.token is not None:
        ledger.fly(item, 1, request.token)
    elif item.phase is Phase.RETRYING and item.due is not None and item.due > ledger.now:
        ledger.effects.append(Arm(request.item, item.due))
    elif item.phase in {Phase.WANTED, Phase.LOST, Phase.RETRYING}:
        _launch(ledger, request.item, item)


def _launch(ledger: Ledger, name: str, item: Item) -> None:
    """Where the owner before was lost, this attempt may have been in flight: it is recorded as lost first."""
    if ledger.state.closing is not None and item.phase is Phase.RETRYING:
        return
    if ledger.state.owner_lost and item.phase is not Phase.LOST:
        item.attempt += 1
        ledger.lose(name, item)
    ledger.launch(name, item)


def _timer(ledger: Ledger, name: str, kind: Kind, seconds: float, after: int) -> None:
    state = ledger.state
    item = state.items.get(name)
    if item is None:
        item = state.items[name] = Item(kind, after)
        due = ledger.now + timedelta(seconds=seconds)
        ledger.record(kind, name, 0, Status.OPENED, after, final=False, due=due)
    if item.phase is not Phase.TIMER or item.due is None:
        return
    if item.due <= ledger.now:
        ledger.fire(name, item)
    else:
        ledger.effects.append(Arm(name, item.due))


def _skip(ledger: Ledger, name: str, after: int) -> None:
    item = ledger.state.items.setdefault(name, Item(Kind.STEP, after))
    if item.outcome is None:
        ledger.deliver(ledger.settle(name, item, Status.SKIPPED), value=None)


def _abandon(ledger: Ledger, name: str) -> None:
    """The body gave the item up. A late success is still recorded, and never delivered."""
    item = ledger.state.items.get(name)
    if item is None or item.phase in {Phase.SETTLED, Phase.ABANDONED}:
        return
    flying = item.token is not None
    ledger.record(item.kind, name, item.attempt, Status.CANCELLED, item.after, final=True)
    if flying:
        ledger.effects.append(CancelStep(name))
