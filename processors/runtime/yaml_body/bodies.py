"""Bodies of YAML workflows, interpreted in the executor's own loop.

Each start and each delivery is answered by exactly one turn, never inside the call itself. The first
attempt of a plain step is started here when `go_until` allows; a step that an earlier life had asked for
waits for `run_step`, because the engine knows what became of it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from msgspec.structs import replace

from processors.engine.requests import BodyEnd, BodyStatus, Request, StepRequest
from processors.ports.actions import Action, ActionCall
from processors.ports.bodies import BodyListener, BodyStart
from processors.runtime.yaml_body.attempts import Attempt, Attempts
from processors.runtime.yaml_body.failures import cancelled, error_of, internal
from processors.runtime.yaml_body.replay import DivergedError, replay
from processors.runtime.yaml_body.specs import FindDefinition, Specs
from processors.runtime.yaml_body.walk import Delivery, Step, Walk
from schemas.errors import AutomationError
from schemas.records import ErrorInfo, Status
from topology.steps import ConnectorStep, SleepStep

_log = structlog.get_logger("yaml_body")

CONNECTOR, SQL = "connector", "sql/execute"


@dataclass(eq=False, slots=True)
class _Run:
    """A run that lives here. `returned` holds results by item until they are delivered."""

    start: BodyStart
    walk: Walk | None = None
    loading: asyncio.Task[None] | None = None
    flights: dict[str, Attempt] = field(default_factory=dict)
    returned: dict[str, str] = field(default_factory=dict)
    started: int = 0


class YamlBodies:
    """The port `Bodies` for kind `yaml`.

    `actions` holds one for `connector` (all operations of connectors) and one for `sql/execute`.
    `definitions` gives the spec of a definition id; a run waits while that is Unavailable.
    """

    def __init__(
        self,
        listener: BodyListener,
        definitions: FindDefinition,
        actions: Mapping[str, Action],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        missing = {CONNECTOR, SQL} - actions.keys()
        if missing:
            raise ValueError(f"no action for {', '.join(sorted(missing))}")
        self._listener = listener
        self._actions = actions
        self._clock = clock
        self._attempts = Attempts(clock)
        self._runs: dict[str, _Run] = {}
        self._specs = Specs(definitions)

    # ------------------------------------------------------------ the port

    def start(self, run: BodyStart) -> None:
        before = self._runs.get(run.run_id)
        if before is not None:
            self._forget(before)
        live = self._runs[run.run_id] = _Run(run)
        live.loading = asyncio.get_running_loop().create_task(self._begin(live))

    def deliver(
        self,
        run_id: str,
        fence: int,
        seq: int,
        item: str,
        outcome: str,
        value: str | None,
        error: ErrorInfo | None,
        at: datetime,  # noqa: ARG002 - templates see no clock
        go_until: float | None,
    ) -> None:
        run = self._find(run_id, fence)
        if run is None:
            return
        returned = run.returned.pop(item, None)
        delivery = Delivery(seq, item, outcome, returned if value is None else value, error)
        asyncio.get_running_loop().call_soon(self._go_on, run, delivery, go_until)

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        run = self._find(run_id, fence)
        if run is None:
            return
        if run.walk is None or run.walk.ask is None or run.walk.ask.item != item:
            self._give_up(run, _out_of_step(f"an attempt of {item!r}", run.walk))
            return
        self._fly(run, run.walk.step, attempt, token, key, timeout)

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        run = self._find(run_id, fence)
        flight = run.flights.get(item) if run is not None else None
        if flight is not None:
            flight.cancel()

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        run = self._find(run_id, fence)
        if run is None:
            return
        if run.walk is None and run.loading is not None:
            run.loading.cancel()
        for flight in run.flights.values():
            flight.cancel()
        asyncio.get_running_loop().call_soon(self._close, run, cause)

    def drop(self, run_id: str, fence: int) -> None:
        run = self._find(run_id, fence)
        if run is not None:
            self._forget(run)

    async def aclose(self) -> None:
        self._attempts.mute()
        loading = [run.loading for run in self._runs.values() if run.loading is not None]
        for run in list(self._runs.values()):
            self._forget(run)
        if loading:
            await asyncio.wait(loading)
        await self._specs.aclose()
        await self._attempts.aclose()

    # ------------------------------------------------------------ turns

    async def _begin(self, run: _Run) -> None:
        start = run.start
        try:
            spec = await self._specs.of(start.definition_id)
            walk = Walk(spec, start)
            was_asked = replay(walk, start.history)
        except DivergedError as exc:
            self._give_up(run, exc.error)
        except AutomationError as exc:
            self._give_up(run, error_of(exc))
        except Exception as exc:  # noqa: BLE001 - a body answers with a turn or `diverged`, come what may
            self._break(run, exc)
        else:
            run.walk = walk
            self._turn(run, walk, None if was_asked else start.go_until)

    def _go_on(self, run: _Run, delivery: Delivery, go_until: float | None) -> None:
        walk = run.walk
        if not self._holds(run) or walk is None or walk.end is not None:
            return
        if walk.ask is None or walk.ask.item != delivery.item:
            self._give_up(run, _out_of_step(f"an outcome of {delivery.item!r}", walk))
            return
        if delivery.value is None and delivery.outcome == Status.SUCCEEDED and not isinstance(walk.step, SleepStep):
            self._give_up(run, _out_of_step(f"a result of {delivery.item!r} that is not here", walk))
            return
        try:
            walk.deliver(delivery)
        except Exception as exc:  # noqa: BLE001 - as above
            self._break(run, exc)
            return
        self._turn(run, walk, go_until)

    def _turn(self, run: _Run, walk: Walk, go_until: float | None) -> None:
        requests: list[Request] = []
        if walk.ask is not None:
            ask: Request = walk.ask
            step = walk.step
            if isinstance(ask, StepRequest) and self._may_start(step, go_until):
                run.started += 1
                ask = replace(ask, started=True, token=f"y{run.started}")
                self._fly(run, step, 1, f"y{run.started}", walk.key_of(step.id), ask.timeout)
            requests.append(ask)
        self._listener.turned(run.start.run_id, run.start.fence, walk.after, requests, walk.end)

    def _may_start(self, step: Step, go_until: float | None) -> bool:
        is_plain = not isinstance(step, SleepStep) and not step.exclusive
        return is_plain and go_until is not None and self._clock() < go_until

    def _close(self, run: _Run, cause: str) -> None:
        if not self._holds(run) or (run.walk is not None and run.walk.end is not None):
            return
        after = 0
        if run.walk is not None:
            run.walk.close(cause)
            after = run.walk.after
        end = BodyEnd(BodyStatus.CANCELLED, error=cancelled(cause))
        self._listener.turned(run.start.run_id, run.start.fence, after, [], end)

    # ------------------------------------------------------------ attempts

    def _fly(self, run: _Run, step: Step, attempt: int, token: str, key: str, timeout: float) -> None:
        walk = run.walk
        if walk is None or isinstance(step, SleepStep):
            raise TypeError(f"{step.id} is not attempted")
        call = ActionCall(
            project_id=run.start.project_id,
            run_id=run.start.run_id,
            step_id=step.id,
            attempt=attempt,
            idempotency_key=key,
            timeout=timeout,
            lane=run.start.lane,
            spec=step,
            scope=walk.scope_of(step.id),
        )
        flight = run.flights[step.id] = Attempt(call, token)
        action = self._actions[CONNECTOR if isinstance(step, ConnectorStep) else SQL]
        self._attempts.start(flight, action, lambda *outcome: self._landed(run, *outcome))

    def _landed(self, run: _Run, flight: Attempt, result: str | ErrorInfo, cost: float) -> None:
        call = flight.call
        if run.flights.get(call.step_id) is flight:
            del run.flights[call.step_id]
        who = (run.start.run_id, run.start.fence, call.step_id, call.attempt, flight.token)
        if flight.has_left:
            self._tell_late(run, flight, result, cost)
        elif isinstance(result, ErrorInfo):
            self._listener.failed(*who, result, cost)
        else:
            run.returned[call.step_id] = result
            self._listener.succeeded(*who, result, cost)

    def _tell_late(self, run: _Run, flight: Attempt, result: str | ErrorInfo, cost: float) -> None:
        """Its answer was there before the cancellation, or came in spite of it."""
        call, is_error = flight.call, isinstance(result, ErrorInfo)
        self._listener.late(
            run.start.run_id,
            run.start.fence,
            call.step_id,
            call.attempt,
            "failed" if is_error else "succeeded",
            None if isinstance(result, ErrorInfo) else result,
            result if isinstance(result, ErrorInfo) else None,
            cost,
        )

    # ------------------------------------------------------------ runs

    def _find(self, run_id: str, fence: int) -> _Run | None:
        run = self._runs.get(run_id)
        return run if run is not None and run.start.fence == fence else None

    def _holds(self, run: _Run) -> bool:
        return self._runs.get(run.start.run_id) is run

    def _give_up(self, run: _Run, error: ErrorInfo) -> None:
        self._forget(run)
        self._listener.diverged(run.start.run_id, run.start.fence, error)

    def _break(self, run: _Run, exc: Exception) -> None:
        _log.error("body_broke", run_id=run.start.run_id, exc_info=exc)
        self._give_up(run, internal(exc))

    def _forget(self, run: _Run) -> None:
        if self._holds(run):
            del self._runs[run.start.run_id]
        if run.loading is not None and run.loading is not asyncio.current_task():
            run.loading.cancel()
        for flight in run.flights.values():
            flight.leave()


def _out_of_step(told: str, walk: Walk | None) -> ErrorInfo:
    """The executor's side told something that this body did not ask for: a defect of ours."""
    asked = walk.ask.item if walk is not None and walk.ask is not None else "nothing"
    message = f"a defect of the service: the body was told of {told}, and had asked for {asked!r}"
    return ErrorInfo("E_INTERNAL", "OutOfStep", message, retryable=False)
