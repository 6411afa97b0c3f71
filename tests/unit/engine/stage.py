"""A run under the engine alone: commands go in one by one, and everything that comes out is kept and checked."""

from datetime import UTC, datetime, timedelta
from typing import TypeVar

from processors.engine.commands import Claimed, Command, Done, Failed, Turn
from processors.engine.decide import decide
from processors.engine.effects import Effect
from processors.engine.ledger import Ledger
from processors.engine.requests import BodyEnd, BodyStatus, Request, RetryPolicy, StepRequest
from processors.engine.state import Item, Phase, RunState, fold
from schemas.records import RUN_ITEM, ErrorInfo, Record, Status

RUN = "run_01J00000000000000000000000"
START = datetime(2026, 7, 19, 14, 0, tzinfo=UTC)
BROKEN = ErrorInfo("E_UPSTREAM_503", "Upstream", "the upstream answered 503")
HOPELESS = ErrorInfo("E_STEP_FAILED", "ValueError", "no such account", retryable=False)
AnyEffect = TypeVar("AnyEffect", bound=Effect)


def logged(item: Item) -> tuple[object, ...]:
    """What of an item must come out of the log alone. An attempt in flight is nobody's but its owner's."""
    told = (item.kind, item.after, item.failures, item.losses, item.outcome, item.first_seq)
    if item.phase is Phase.IN_FLIGHT:
        return told
    return (*told, item.phase, item.attempt, item.due)


def assert_same_log(state: RunState, log: list[Record]) -> None:
    """Folding the records gives the logged part of the state that wrote them."""
    again = fold(state.run_id, state.generation, log)
    assert (again.seq, again.closing, again.ended, again.blocked) == (
        state.seq,
        state.closing,
        state.ended,
        state.blocked,
    )
    flying = {name for name, item in state.items.items() if item.phase is Phase.IN_FLIGHT}
    known = {name: logged(item) for name, item in state.items.items() if item.first_seq and name not in flying}
    assert {name: logged(item) for name, item in again.items.items() if name not in flying} == known
    for name in flying & again.items.keys():
        assert logged(again.items[name])[:6] == logged(state.items[name])


def assert_sound(log: list[Record]) -> None:
    """Dense numbers, one end and nothing behind it, one final outcome an item (an abandoned one may land late)."""
    assert [record.seq for record in log] == list(range(1, len(log) + 1))
    ends = [record.seq for record in log if record.status is Status.ENDED]
    assert ends in ([], [len(log)])
    finals: dict[str, list[Status]] = {}
    for record in log:
        if record.final and record.item != RUN_ITEM:
            finals.setdefault(record.item, []).append(record.status)
    for name, statuses in finals.items():
        assert len(statuses) == 1 or statuses == [Status.CANCELLED, Status.SUCCEEDED], (name, statuses)


class Stage:
    """`effects` are those of the last command, `log` all records so far."""

    def __init__(self, state: RunState | None = None, log: list[Record] | None = None) -> None:
        self.log: list[Record] = list(log or [])
        self.state = state or fold(RUN, 1, self.log)
        self.now = START
        self.effects: list[Effect] = []
        self.records: list[Record] = []

    def do(self, command: Command, roll: float = 0.5) -> Ledger:
        decision = decide(self.state, command, self.now, roll)
        self.log += decision.records
        self.effects, self.records = decision.effects, decision.records
        assert_same_log(self.state, self.log)
        assert_sound(self.log)
        assert self.state.in_flight == sum(item.token is not None for item in self.state.items.values())
        return decision

    def reclaimed(self, *, owner_lost: bool) -> "Stage":
        """Another owner: the log is all that it knows."""
        other = Stage(log=self.log)
        other.now = self.now
        other.do(Claimed(owner_lost))
        return other

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def begin(self, *requests: Request) -> None:
        self.do(Claimed(owner_lost=False))
        self.turn(0, *requests)

    def turn(self, after: int, *requests: Request, end: BodyEnd | None = None) -> None:
        self.do(Turn(after, requests, end))

    def done(self, name: str, value: str = "null") -> None:
        self.do(Done(name, self.attempt(name), self.token(name), value, 0.01))

    def failed(self, name: str, error: ErrorInfo = BROKEN, roll: float = 0.5) -> None:
        self.do(Failed(name, self.attempt(name), self.token(name), error, 0.01), roll)

    def item(self, name: str) -> Item:
        return self.state.items[name]

    def attempt(self, name: str) -> int:
        return self.item(name).attempt

    def token(self, name: str) -> str:
        token = self.item(name).token
        assert token is not None, f"{name} is not in flight"
        return token

    def effect(self, kind: type[AnyEffect]) -> AnyEffect:
        """The one effect of this kind of the last command."""
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, self.effects
        return found[0]

    def has(self, kind: type[AnyEffect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)

    def told(self) -> list[tuple[str, Status]]:
        """Items and statuses of the last command's records."""
        return [(record.item, record.status) for record in self.records]


def asked(name: str, *, most: int = 3, base: float = 1.0, cap: float = 300.0, token: str | None = None) -> StepRequest:
    """A step; with a token the body's side has started it."""
    policy = RetryPolicy(max=most, base=base, cap=cap)
    return StepRequest(name, 10.0, policy, started=token is not None, token=token)


def returned(value: str = "null") -> BodyEnd:
    return BodyEnd(BodyStatus.SUCCEEDED, value)


def raised(error: ErrorInfo = HOPELESS) -> BodyEnd:
    return BodyEnd(BodyStatus.FAILED, error=error)
