"""Comes back to where a run was: plays its history into a walk, and tells where the two part."""

from collections.abc import Sequence

from processors.engine.requests import SkipRequest, SleepRequest
from processors.ports.bodies import Past
from processors.runtime.yaml_body.failures import diverged
from processors.runtime.yaml_body.walk import Ask, Delivery, Walk
from schemas.records import ErrorInfo, Kind, Status


class DivergedError(Exception):
    """The definition does not ask for what was recorded."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


def replay(walk: Walk, history: Sequence[Past]) -> bool:
    """Play all of it. True: what the walk asks for now was asked for in an earlier life already.

    Raises DivergedError.
    """
    settled = [past for past in history if past.outcome is not None]
    for past in sorted(settled, key=lambda one: one.seq):
        _check(walk, past)
        walk.deliver(Delivery(past.seq, past.item, str(past.outcome), past.value, past.error))
    unsettled = [past for past in history if past.outcome is None]
    for past in unsettled:
        _check(walk, past)
    return bool(unsettled)


def _check(walk: Walk, past: Past) -> None:
    ask = walk.ask
    is_same = ask is not None and ask.item == past.item and walk.after == past.after and _fits(ask, past)
    if not is_same:
        raise DivergedError(diverged(_recorded(past), _asked(walk)))


def _fits(ask: Ask, past: Past) -> bool:
    if isinstance(ask, SkipRequest) or past.outcome == Status.SKIPPED:
        return isinstance(ask, SkipRequest) and past.outcome == Status.SKIPPED
    return isinstance(ask, SleepRequest) == (past.kind == Kind.SLEEP)


def _recorded(past: Past) -> str:
    how = "a skipped step" if past.outcome == Status.SKIPPED else f"a {past.kind}"
    return f"{how} {past.item!r} asked for after record {past.after}"


def _asked(walk: Walk) -> str:
    if walk.ask is None:
        return f"nothing more after record {walk.after}"
    kinds = {SkipRequest: "a skipped step", SleepRequest: "a sleep"}
    return f"{kinds.get(type(walk.ask), 'a step')} {walk.ask.item!r} after record {walk.after}"
