"""Bodies that follow a script, on virtual time, and the ledger of what their steps did to the world.

A script is a list of branches that run at once; each is a list of acts, one after the other. The ledger stands outside
of all processes: an effect that happened stays, whoever dies afterwards. A body that comes back insists on being asked
the way in which it went before.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from processors.engine.requests import BodyEnd, BodyStatus, Request, RetryPolicy, SleepRequest, StepRequest
from processors.ports.bodies import BodyListener, BodyStart
from schemas.records import ErrorInfo
from tests.simulation.memory.network import Network

CANCELLED = ErrorInfo("E_CANCELLED", "Cancelled", "the step was cancelled", retryable=False)
BROKEN = ErrorInfo("E_UPSTREAM_503", "Upstream", "the upstream answered 503")
HOPELESS = ErrorInfo("E_STEP_FAILED", "ValueError", "no such account", retryable=False)


@dataclass(frozen=True, slots=True)
class Act:
    """A step of `seconds`, or a sleep. Attempts up to `fails` fail; `is_hopeless`: the next one ends the run."""

    name: str
    seconds: float
    is_sleep: bool = False
    fails: int = 0
    is_hopeless: bool = False


Script = Sequence[Sequence[Act]]


class Witness:
    """What bodies do, seen from outside. Raising ends the simulation."""

    def began(self, run_id: str, fence: int, item: str, attempt: int, after: int) -> None: ...
    def delivered(self, run_id: str, fence: int, seq: int) -> None: ...
    def effected(self, key: str) -> None: ...


@dataclass(eq=False, slots=True)
class _Body:
    run: BodyStart
    script: Script
    places: list[int]
    waiting: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    after: int = 0
    tokens: int = 0
    busy_until: float = 0.0
    is_over: bool = False


@dataclass(eq=False, slots=True)
class _Attempt:
    body: _Body
    act: Act
    number: int
    token: str
    timer: asyncio.TimerHandle


class SimulatedBodies:
    """Implements `Bodies` for one process. `script_of` reads a run's input."""

    def __init__(
        self, network: Network, listener: BodyListener, script_of: Callable[[str], Script], witness: Witness
    ) -> None:
        self._network = network
        self._listener = listener
        self._script_of = script_of
        self._witness = witness
        self._bodies: dict[str, _Body] = {}
        self._running: dict[tuple[str, str], _Attempt] = {}

    def lose_host(self) -> int:
        """A step host dies, with about half of the runs in it."""
        lost = [body.run for body in self._bodies.values() if self._network.chance(0.5)]
        for run in lost:
            self._drop(run.run_id, run.fence, may_linger=False)
        if lost:
            self._listener.lost([(run.run_id, run.fence) for run in lost], "killed")
        return len(lost)

    # the port

    def start(self, run: BodyStart) -> None:
        script = self._script_of(run.input)
        body = self._bodies[run.run_id] = _Body(run, script, [0] * len(script))
        self._soon(body, self._begin, body)

    def deliver(
        self,
        run_id: str,
        fence: int,
        seq: int,
        item: str,
        outcome: str,
        value: str | None,
        error: ErrorInfo | None,
        at: datetime,
        go_until: float | None,
    ) -> None:
        body = self._held(run_id, fence)
        if body is not None:
            self._witness.delivered(run_id, fence, seq)
            self._soon(body, self._hear, body, seq, item, outcome, go_until)

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        body = self._held(run_id, fence)
        if body is not None:
            self._soon(body, self._attempt, body, item, attempt, token)

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        body = self._held(run_id, fence)
        if body is not None:
            self._soon(body, self._cancel, body, item)

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        body = self._held(run_id, fence)
        if body is not None:
            self._soon(body, self._close, body)

    def drop(self, run_id: str, fence: int) -> None:
        self._drop(run_id, fence, may_linger=True)

    async def aclose(self) -> None:
        for attempt in self._running.values():
            attempt.timer.cancel()
        self._bodies.clear()
        self._running.clear()

    # one thing after the other for each run, a little later each

    def _soon(self, body: _Body, work: Callable[..., None], *args: object) -> None:
        loop = self._network.loop
        body.busy_until = max(body.busy_until, loop.time()) + self._network.between(0.0002, 0.004)

        def go() -> None:
            if self._bodies.get(body.run.run_id) is body:
                work(*args)

        loop.call_at(body.busy_until, go)

    def _held(self, run_id: str, fence: int) -> _Body | None:
        body = self._bodies.get(run_id)
        return body if body is not None and body.run.fence == fence else None

    # the script

    def _begin(self, body: _Body) -> None:
        run = body.run
        requests = [one for place in range(len(body.script)) for one in self._advance(body, place)]
        opened = {past.item for past in run.history if past.outcome is None}
        for past in sorted(run.history, key=lambda one: one.seq):
            assert past.outcome is None or body.asked.get(past.item) == past.after, f"replay took another way: {past}"
            if past.outcome is not None:
                requests += self._take(body, past.seq, past.item, past.outcome)
        settled = {past.item for past in run.history if past.outcome is not None}
        self._tell(body, [one for one in requests if one.item not in settled], run.go_until, opened)

    def _hear(self, body: _Body, seq: int, item: str, outcome: str, go_until: float | None) -> None:
        self._tell(body, self._take(body, seq, item, outcome), go_until, set())

    def _take(self, body: _Body, seq: int, item: str, outcome: str) -> list[StepRequest | SleepRequest]:
        body.after = seq
        place = body.waiting.pop(item, None)
        if place is None or body.is_over:
            return []
        if outcome == "failed":
            body.is_over = True
            return []
        body.places[place] += 1
        return self._advance(body, place)

    def _advance(self, body: _Body, place: int) -> list[StepRequest | SleepRequest]:
        if body.places[place] == len(body.script[place]):
            return []
        act = body.script[place][body.places[place]]
        body.waiting[act.name], body.asked[act.name] = place, body.after
        if act.is_sleep:
            return [SleepRequest(act.name, act.seconds, after=body.after)]
        return [StepRequest(act.name, 60.0, RetryPolicy(act.fails + 2, 0.3, 2.0), after=body.after)]

    def _tell(
        self, body: _Body, requests: list[StepRequest | SleepRequest], go_until: float | None, opened: set[str]
    ) -> None:
        run, told, starts = body.run, list[Request](), list[StepRequest]()
        may_start = go_until is not None and self._network.loop.time() < go_until
        for one in requests:
            request: StepRequest | SleepRequest = one
            if may_start and isinstance(one, StepRequest) and one.item not in opened:
                body.tokens += 1
                request = StepRequest(
                    one.item, one.timeout, one.retry, started=True, token=f"s{body.tokens}", after=one.after
                )
                starts.append(request)
            told.append(request)
        self._listener.turned(run.run_id, run.fence, body.after, told, self._end(body))
        for request in starts:
            self._attempt(body, request.item, 1, request.token or "")

    def _end(self, body: _Body) -> BodyEnd | None:
        if body.is_over:
            return BodyEnd(BodyStatus.FAILED, error=HOPELESS)
        if body.waiting:
            return None
        body.is_over = True
        return BodyEnd(BodyStatus.SUCCEEDED, json.dumps({"steps": len(body.asked)}))

    def _close(self, body: _Body) -> None:
        if not body.is_over:
            body.is_over = True
            run = body.run
            self._listener.turned(run.run_id, run.fence, body.after, [], BodyEnd(BodyStatus.CANCELLED))

    # attempts

    def _attempt(self, body: _Body, item: str, number: int, token: str) -> None:
        act = next(one for branch in body.script for one in branch if one.name == item)
        self._witness.began(body.run.run_id, body.run.fence, item, number, body.asked[item])
        timer = self._network.loop.call_later(act.seconds * self._network.between(0.2, 1.8), self._land, body, item)
        self._running[body.run.run_id, item] = _Attempt(body, act, number, token, timer)

    def _land(self, body: _Body, item: str) -> None:
        attempt, run = self._running.pop((body.run.run_id, item)), body.run
        error = self._outcome(attempt)
        if error is not None:
            self._listener.failed(run.run_id, run.fence, item, attempt.number, attempt.token, error, 0.1)
        else:
            self._listener.succeeded(run.run_id, run.fence, item, attempt.number, attempt.token, f'"{item}"', 0.1)

    def _outcome(self, attempt: _Attempt) -> ErrorInfo | None:
        """What it did, it did: the effect is in the ledger before anybody hears of it."""
        if attempt.number <= attempt.act.fails:
            return BROKEN
        if attempt.act.is_hopeless:
            return HOPELESS
        run = attempt.body.run
        self._witness.effected(f"{run.run_id}:{attempt.act.name}:g{run.generation}")
        return None

    def _cancel(self, body: _Body, item: str) -> None:
        attempt, run = self._running.pop((body.run.run_id, item), None), body.run
        if attempt is not None:
            attempt.timer.cancel()
            self._listener.failed(run.run_id, run.fence, item, attempt.number, attempt.token, CANCELLED, 0.1)

    def _drop(self, run_id: str, fence: int, *, may_linger: bool) -> None:
        if self._held(run_id, fence) is None:
            return
        del self._bodies[run_id]
        for key in [key for key in self._running if key[0] == run_id]:
            attempt = self._running.pop(key)
            attempt.timer.cancel()
            if may_linger and self._network.chance(0.3):  # a thread that nobody can stop
                self._network.loop.call_later(self._network.between(0.1, 2.0), self._late, attempt)

    def _late(self, attempt: _Attempt) -> None:
        run, error = attempt.body.run, self._outcome(attempt)
        status, value = ("succeeded", f'"{attempt.act.name}"') if error is None else ("failed", None)
        self._listener.late(run.run_id, run.fence, attempt.act.name, attempt.number, status, value, error, 0.1)
