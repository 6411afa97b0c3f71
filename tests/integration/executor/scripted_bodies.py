"""Bodies in memory that follow a script: the port `Bodies` with nothing behind it that could be slow or random.

A script is a list of branches that run at once; each is a list of acts, done one after the other. A step's outcome
comes at once, or when the test lets it (`gates`). Everything that a body is told is kept, to be asked about.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from processors.engine.requests import BodyEnd, BodyStatus, Request, RetryPolicy, SleepRequest, StepRequest
from processors.ports.bodies import BodyListener, BodyStart
from schemas.records import ErrorInfo

CANCELLED = ErrorInfo("E_CANCELLED", "Cancelled", "the step was cancelled", retryable=False)


@dataclass(frozen=True)
class Act:
    """A step, or a sleep where `sleep` is set. It fails `fails` times before it succeeds."""

    name: str
    sleep: float | None = None
    fails: int = 0
    most: int = 3
    base: float = 1.0
    value: str | None = None
    error: ErrorInfo = ErrorInfo("E_UPSTREAM_503", "Upstream", "the upstream answered 503")  # noqa: RUF009  frozen


Script = Sequence[Sequence[Act]]


@dataclass
class _Body:
    run: BodyStart
    script: Script
    places: list[int] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    after: int = 0
    tokens: int = 0
    is_over: bool = False


class ScriptedBodies:
    """`script_of` tells what a run does. `begun` counts attempts that ran, by (run, step)."""

    def __init__(self, listener: BodyListener, script_of: Callable[[BodyStart], Script]) -> None:
        self._listener = listener
        self._script_of = script_of
        self._bodies: dict[str, _Body] = {}
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.begun: Counter[tuple[str, str]] = Counter()
        self.starts: list[BodyStart] = []
        self.order: list[str] = []
        self.closed: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.self_starts = True

    def gate(self, name: str) -> asyncio.Event:
        """Attempts of this step wait until it is set; answers what is set once the first one waits."""
        self.gates[name] = asyncio.Event()
        self.reached[name] = asyncio.Event()
        return self.reached[name]

    def lose(self, run_id: str) -> None:
        """The step host with this run dies."""
        body = self._bodies[run_id]
        self.drop(run_id, body.run.fence)
        self._listener.lost([(run_id, body.run.fence)], "killed")

    # the port

    def start(self, run: BodyStart) -> None:
        body = self._bodies[run.run_id] = _Body(run, self._script_of(run))
        self.starts.append(run)
        self.order.append(run.run_id)
        body.places = [0] * len(body.script)
        requests = [one for place in range(len(body.script)) for one in self._advance(body, place)]
        open_items = {past.item for past in run.history if past.outcome is None}
        for past in sorted(run.history, key=lambda one: one.seq):
            assert body.asked.get(past.item) == past.after or past.outcome is None, f"{past} was not asked for"
            if past.outcome is not None:
                requests += self._take(body, past.seq, past.item, past.outcome)
        settled = {past.item for past in run.history if past.outcome is not None}
        left = [one for one in requests if one.item not in settled]
        self._tell(body, left, run.go_until, open_items)

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
            self._tell(body, self._take(body, seq, item, outcome), go_until, set())

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        body = self._held(run_id, fence)
        if body is not None:
            self._begin(body, item, attempt, token)

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        task = self._running.get((run_id, item))
        if task is not None and self._held(run_id, fence):
            task.cancel("cancel_step")

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        body = self._held(run_id, fence)
        if body is not None and not body.is_over:
            self.closed.append(run_id)
            body.is_over = True
            self._listener.turned(run_id, fence, body.after, [], BodyEnd(BodyStatus.CANCELLED))

    def drop(self, run_id: str, fence: int) -> None:
        body = self._bodies.get(run_id)
        if body is None or body.run.fence != fence:
            return
        del self._bodies[run_id]
        for key in [key for key in self._running if key[0] == run_id]:
            self._running.pop(key).cancel()

    async def aclose(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # how a script is followed

    def _held(self, run_id: str, fence: int) -> _Body | None:
        body = self._bodies.get(run_id)
        return body if body is not None and body.run.fence == fence else None

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
        body.waiting[act.name] = place
        body.asked[act.name] = body.after
        if act.sleep is not None:
            return [SleepRequest(act.name, act.sleep, after=body.after)]
        return [StepRequest(act.name, 30.0, RetryPolicy(act.most, act.base, 300.0), after=body.after)]

    def _tell(
        self, body: _Body, requests: list[StepRequest | SleepRequest], go_until: float | None, opened: set[str]
    ) -> None:
        run, told, starts = body.run, list[Request](), list[StepRequest]()
        may_start = self.self_starts and go_until is not None and asyncio.get_running_loop().time() < go_until
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
            self._begin(body, request.item, 1, request.token or "")

    def _end(self, body: _Body) -> BodyEnd | None:
        if body.is_over:
            return BodyEnd(BodyStatus.FAILED, error=ErrorInfo("E_STEP_FAILED", "StepError", "a step failed"))
        if body.waiting:
            return None
        body.is_over = True
        return BodyEnd(BodyStatus.SUCCEEDED, json.dumps({"steps": len(body.asked)}))

    def _begin(self, body: _Body, item: str, attempt: int, token: str) -> None:
        act = next(one for branch in body.script for one in branch if one.name == item)
        coming = self._attempt(body.run, act, attempt, token)
        self._running[body.run.run_id, item] = asyncio.create_task(coming)

    async def _attempt(self, run: BodyStart, act: Act, attempt: int, token: str) -> None:
        key = (run.run_id, act.name)
        self.begun[key] += 1
        try:
            if act.name in self.gates:
                self.reached[act.name].set()
                await self.gates[act.name].wait()
        except asyncio.CancelledError as exc:
            if exc.args:
                self._listener.failed(run.run_id, run.fence, act.name, attempt, token, CANCELLED, 0.01)
            return
        if self.begun[key] <= act.fails:
            self._listener.failed(run.run_id, run.fence, act.name, attempt, token, act.error, 0.01)
        else:
            value = f'"{act.name}"' if act.value is None else act.value
            self._listener.succeeded(run.run_id, run.fence, act.name, attempt, token, value, 0.01)
