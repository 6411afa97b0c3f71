"""Everything around the engine, in memory: a body, attempts, timers, owners and hosts that die.

Effects happen as the executor lets them happen: those that wait for the commit in their order, after the records.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from processors.engine.commands import BodyLost, Cancel, Claimed, Command, Done, Due, Failed, Turn
from processors.engine.effects import (
    Arm,
    Block,
    CloseBody,
    Deliver,
    DropBody,
    Effect,
    End,
    Park,
    RunStep,
    StartBody,
)
from processors.engine.requests import BodyEnd, StepRequest
from processors.engine.state import Phase, RunState
from schemas.records import ErrorInfo, Record, Status
from tests.unit.engine.stage import BROKEN, HOPELESS, Stage

STOPPED = ErrorInfo("E_CANCELLED", "Cancelled", "the step was cancelled", retryable=False)


class WorldBody(Protocol):
    """A body of one life, driven by hand. `end` is set once it has ended."""

    end: BodyEnd | None

    def begin(self, state: RunState, *, may_start: bool) -> Turn:
        """The first turn, after the history was played."""

    def deliver(self, effect: Deliver, *, may_start: bool) -> Turn:
        """The answer to a delivery."""

    def close(self) -> Turn:
        """The answer to being closed."""


class TinyWorld:
    """`fates`: how often a step fails before it succeeds; -1: it never succeeds and says so at once."""

    def __init__(
        self,
        make_body: Callable[[], WorldBody],
        fates: Mapping[str, int],
        log: Sequence[Record] = (),
    ) -> None:
        self.make_body, self.fates = make_body, fates
        self.stage = Stage(log=list(log))
        self.end: End | None = None
        self._forget()
        self.apply(Claimed(owner_lost=bool(log)))

    def _forget(self) -> None:
        self.body: WorldBody | None = None
        self.turns: deque[Turn] = deque()
        self.running: dict[str, tuple[int, str]] = {}
        self.armed: set[str] = set()
        self.parked = self.blocked = False
        self.delivered = 0

    # what happens after a decision

    def apply(self, command: Command) -> None:
        self.stage.do(command)
        for effect in list(self.stage.effects):
            self._happen(effect)

    def _happen(self, effect: Effect) -> None:
        """A `CancelStep` needs nothing: the attempt may end in any way all the same."""
        match effect:
            case StartBody():
                self._start_body()
            case Deliver():
                self._deliver(effect)
            case RunStep():
                assert effect.item not in self.running
                self.running[effect.item] = (effect.attempt, effect.token)
            case Arm():
                self.armed.add(effect.item)
            case CloseBody():
                self._close_body()
            case DropBody():
                self._drop_body()
            case Park() | Block() | End():
                self._rest(effect)

    def _rest(self, effect: Park | Block | End) -> None:
        assert self.end is None, "the run ended twice"
        self.parked, self.blocked = isinstance(effect, Park), isinstance(effect, Block)
        self.end = effect if isinstance(effect, End) else None

    def _drop_body(self) -> None:
        self.body = None
        self.turns.clear()
        self.running.clear()
        self.armed.clear()

    def _start_body(self) -> None:
        state = self.stage.state
        self.body, self.running, self.delivered = self.make_body(), {}, 0
        self.turns.clear()
        self._hear(self.body.begin(state, may_start=not state.owner_lost))

    def _deliver(self, effect: Deliver) -> None:
        assert self.body is not None
        assert effect.seq > self.delivered
        self.delivered = effect.seq
        if self.body.end is None:
            self._hear(self.body.deliver(effect, may_start=not self.stage.state.guesses(effect.seq)))

    def _hear(self, turn: Turn) -> None:
        for request in turn.requests:
            if isinstance(request, StepRequest) and request.started and request.token:
                self.running[request.item] = (1, request.token)
        self.turns.append(turn)

    def _close_body(self) -> None:
        assert self.body is not None
        if self.body.end is None:
            self._hear(self.body.close())

    # what may happen next

    def moves(self) -> list[Callable[[], None]]:
        """Everything that may happen now; the first ones, taken again and again, bring the run to its end."""
        if self.end is not None or self.blocked:
            return []
        if self.parked:
            return [self.wake]
        found: list[Callable[[], None]] = [self._answer] if self.turns else []
        found += [partial(self._land, name) for name in sorted(self.running)]
        found += [partial(self._fire, name) for name in sorted(self.armed)]
        return found

    def wake(self) -> None:
        state = self.stage.state
        dues = [item.due for item in state.items.values() if item.due and item.phase in {Phase.RETRYING, Phase.TIMER}]
        self.stage.now = max(self.stage.now, min(dues))
        self.reclaim(owner_lost=False)

    def reclaim(self, *, owner_lost: bool) -> None:
        self._forget()
        log, now = self.stage.log, self.stage.now
        self.stage = Stage(log=log)
        self.stage.now = now
        self.apply(Claimed(owner_lost))

    def kill_host(self) -> None:
        if self.body is not None:
            self.body = None
            self.running.clear()
            self.turns.clear()
            self.apply(BodyLost("killed"))

    def cancel(self) -> None:
        self.apply(Cancel("ops", "stop"))

    def stray(self, name: str) -> None:
        """What belongs to nobody any more must change nothing."""
        before = len(self.stage.log)
        self.apply(Done(name, 1, "h-stale", '"stale"', 0.1))
        self.apply(Failed(name, 99, "x1.99", BROKEN, 0.1))
        assert len(self.stage.log) == before

    def _answer(self) -> None:
        self.apply(self.turns.popleft())

    def _fire(self, name: str) -> None:
        self.armed.discard(name)
        item = self.stage.state.items.get(name)
        if item is not None and item.due is not None:
            self.stage.now = max(self.stage.now, item.due)
        elif name == "~close":
            self.stage.wait(10)
        self.apply(Due(name))

    def _land(self, name: str) -> None:
        """An attempt ends as its step's fate says; one whose turn was not heard yet lands after it."""
        item = self.stage.state.items.get(name)
        if item is None or item.token != self.running[name][1]:
            if self.turns:
                self._answer()
            return
        attempt, token = self.running.pop(name)
        fate = self.fates.get(name, 0)
        if self.stage.state.closing is not None and self.stage.state.closing.cancelled:
            self.apply(Failed(name, attempt, token, STOPPED, 0.1))
        elif fate < 0:
            self.apply(Failed(name, attempt, token, replace(HOPELESS, message=name), 0.1))
        elif item.failures < fate:
            self.apply(Failed(name, attempt, token, replace(BROKEN, message=name), 0.1))
        else:
            self.apply(Done(name, attempt, token, f'"{name}"', 0.1))

    def finish(self) -> None:
        """Let everything happen until nothing can."""
        for _ in range(2000):
            moves = self.moves()
            if not moves:
                return
            moves[0]()
        raise AssertionError("the run does not come to an end")

    def outcome(self) -> tuple[str, str | None, str | None]:
        assert self.end is not None, "the run has not ended"
        return self.end.status, self.end.value, self.end.error.code if self.end.error else None

    def statuses(self) -> list[tuple[str, Status]]:
        return [(record.item, record.status) for record in self.stage.log]
