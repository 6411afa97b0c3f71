"""A tiny deterministic body: branches that run at once, each a list of things to ask for.

It stands for the two real kinds of bodies: it answers a delivery with one turn, plays its history when it comes
back, and insists that every recorded item is asked for after the delivery that the record names.
"""

from dataclasses import dataclass, field
from typing import Literal

from processors.engine.commands import Turn
from processors.engine.effects import Deliver
from processors.engine.requests import (
    BodyEnd,
    BodyStatus,
    CancelRequest,
    Request,
    RetryPolicy,
    SkipRequest,
    SleepRequest,
    StepRequest,
    TimerRequest,
)
from processors.engine.state import RunState, history
from schemas.records import ErrorInfo, Status
from tests.unit.engine.stage import raised, returned

ActKind = Literal["step", "sleep", "skip", "loose", "race"]


@dataclass(frozen=True, slots=True)
class Act:
    """`loose` steps are not awaited; a `race` is a step against a timer, and the loser is given up."""

    kind: ActKind
    name: str
    seconds: float = 5.0
    most: int = 3


@dataclass
class TinyBody:
    """`self_starts`: whether the body's side begins first attempts by itself where it may."""

    program: list[list[Act]]
    self_starts: bool = False
    after: int = 0
    end: BodyEnd | None = None
    _places: list[int] = field(default_factory=list)
    _waiting: dict[str, int] = field(default_factory=dict)
    _tokens: int = 0

    def begin(self, state: RunState, *, may_start: bool) -> Turn:
        """The first turn of this life, after everything on record was played."""
        past = history(state)
        records = {one.name: one.item.after for one in past}
        settled = {one.name for one in past if one.outcome is not None}
        carried: dict[str, Request] = {}
        self._places = [0] * len(self.program)
        asked = self._answer([step for place in range(len(self.program)) for step in self._advance(place)])
        self._check(asked, records, settled, carried)
        for one in past:
            if one.outcome is not None:
                assert self.end is None, f"the end of the body, with the outcome of {one.name} left"
                answer = self._take(one.seq, one.name, one.outcome.status, one.outcome.error)
                self._check(list(answer.requests), records, settled, carried)
        assert not self.end or all(after <= self.after for after in records.values()), "items after the end"
        requests = list(carried.values())
        if may_start:
            requests = [self._started(request) if _name(request) not in records else request for request in requests]
        return Turn(self.after, requests, self.end)

    def deliver(self, effect: Deliver, *, may_start: bool) -> Turn:
        turn = self._take(effect.seq, effect.item, effect.outcome, effect.error)
        requests = [self._started(one) for one in turn.requests] if may_start else turn.requests
        return Turn(turn.after, requests, turn.end)

    def close(self) -> Turn:
        self.end = BodyEnd(BodyStatus.CANCELLED)
        return Turn(self.after, [], self.end)

    def _take(self, seq: int, name: str, outcome: Status, error: ErrorInfo | None) -> Turn:
        assert self.end is None, f"a delivery after the end: {name}"
        assert seq > self.after
        self.after = seq
        place = self._waiting.pop(name, None)
        if place is None:  # nobody awaits it: a loose step, or the loser of a race that came in meanwhile
            return Turn(seq, [], None)
        act = self.program[place][self._places[place]]
        if outcome is Status.FAILED:
            self.end = raised(error) if error else raised()
            return Turn(seq, [], self.end)
        requests: list[Request] = []
        if act.kind == "race":
            loser = f"~{act.name}" if name == act.name else act.name
            self._waiting.pop(loser, None)
            requests.append(CancelRequest(loser))
        self._places[place] += 1
        return Turn(seq, self._answer(requests + self._advance(place)), self.end)

    def _answer(self, requests: list[Request]) -> list[Request]:
        if all(at == len(branch) for at, branch in zip(self._places, self.program, strict=True)):
            self.end = returned('"done"')
        return requests

    def _advance(self, place: int) -> list[Request]:
        """What a branch asks for from where it stands until it has to wait."""
        requests: list[Request] = []
        branch = self.program[place]
        while self._places[place] < len(branch):
            act = branch[self._places[place]]
            requests += _requests(act, self.after)
            if act.kind != "loose":
                self._waiting[act.name] = place
                if act.kind == "race":
                    self._waiting[f"~{act.name}"] = place
                break
            self._places[place] += 1
        return requests

    def _check(
        self, asked: list[Request], records: dict[str, int], settled: set[str], carried: dict[str, Request]
    ) -> None:
        """Every item on record after this delivery is asked for in this turn, as the real bodies check."""
        names = {_name(request) for request in asked if not isinstance(request, CancelRequest)}
        due = {name for name, after in records.items() if after == self.after}
        assert due <= names, f"after {self.after} on record: {due}, asked: {names}"
        for request in asked:
            name = _name(request)
            if isinstance(request, CancelRequest):
                was = carried.pop(name, None)
                if was is not None and name in records:
                    carried[f"-{name}"] = request
                continue
            assert records.get(name, self.after) == self.after, f"{name} is on record after {records[name]}"
            if name not in settled:
                carried[name] = request

    def _started(self, request: Request) -> Request:
        if not self.self_starts or not isinstance(request, StepRequest):
            return request
        self._tokens += 1
        return StepRequest(
            request.item, request.timeout, request.retry, started=True, token=f"h{self._tokens}", after=request.after
        )


def _requests(act: Act, after: int) -> list[Request]:
    policy = RetryPolicy(max=act.most, base=1.0, cap=60.0)
    match act.kind:
        case "step" | "loose":
            return [StepRequest(act.name, 10.0, policy, after=after)]
        case "sleep":
            return [SleepRequest(act.name, act.seconds, after=after)]
        case "skip":
            return [SkipRequest(act.name, after=after)]
        case "race":
            return [
                StepRequest(act.name, 10.0, policy, after=after),
                TimerRequest(f"~{act.name}", act.seconds, after=after),
            ]


def _name(request: Request) -> str:
    return request.target if isinstance(request, CancelRequest) else request.item
