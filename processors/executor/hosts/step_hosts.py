"""`StepHosts`: the port `Bodies` for code workflows, over host processes.

Every call returns at once. A run goes to the host of its project and bundle; what is asked of it before it is
there waits, and what is asked of another life of it is ignored.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from processors.engine.requests import BodyEnd, BodyStatus
from processors.executor.hosts import calls
from processors.executor.hosts.fleet import Fleet
from processors.executor.hosts.held import Attempt, HeldRun, Launch
from processors.executor.hosts.program import Program
from processors.executor.hosts.settings import HostSettings
from processors.executor.hosts.starter import Bundles, Starter
from processors.executor.hosts.watch import Watch
from processors.ports.bodies import BodyListener, BodyStart
from processors.ports.measures import Measures
from processors.runtime.patience import Patience
from schemas.errors import Refused
from schemas.records import ErrorInfo

Definition = tuple[str, int]


class StepHosts:
    """Made inside a running loop, and closed by `aclose`."""

    def __init__(
        self,
        listener: BodyListener,
        bundles: Bundles,
        settings: HostSettings | None = None,
        measures: Measures | None = None,
    ) -> None:
        self._settings = settings or HostSettings()
        self._listener = listener
        self._runs: dict[str, HeldRun] = {}
        self._programs: dict[Definition, Program] = {}
        self._fetching: dict[Definition, asyncio.Task[None]] = {}
        self._waiting: dict[Definition, list[HeldRun]] = {}
        self._starter = Starter(bundles, self._settings)
        watch = Watch(listener, self._settings, measures or Measures())
        self._fleet = Fleet(listener, self._starter, self._settings, watch, self._lost, self._refused, self._launch)

    def warm(self) -> None:
        """Start the spare host now, so that the first run finds it ready."""
        self._fleet.warm()

    # -- the port -----------------------------------------------------------------------------------

    def start(self, run: BodyStart) -> None:
        before = self._runs.get(run.run_id)
        if before is not None:
            self._leave(before)
        held = self._runs[run.run_id] = HeldRun(run.run_id, run.fence, run)
        definition = (run.project_id, run.definition_id)
        program = self._programs.get(definition)
        if program is not None:
            self._fleet.place(held, program, run.losses)
            return
        self._waiting.setdefault(definition, []).append(held)
        if definition not in self._fetching:
            self._fetching[definition] = asyncio.get_running_loop().create_task(self._fetch(definition))

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
        run = self._held(run_id, fence)
        if run is not None:
            may_go = run.host is None or run.host.takes_attempts
            until = go_until if may_go else None
            self._send(run, calls.delivery(run_id, fence, seq, item, outcome, value, error, at, until))

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        run = self._held(run_id, fence)
        if run is None:
            return
        allowed = timeout + self._settings.grace
        launch = Launch(
            run,
            Attempt(item, attempt, token, allowed, 0.0),
            calls.attempt_of(run_id, fence, item, attempt, token, key, timeout),
        )
        run.unbegun[item] = launch
        if not self._fleet.leftovers.hold(launch):
            self._launch(launch)

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        run = self._held(run_id, fence)
        if run is not None:
            unbegun = run.unbegun.pop(item, None)
            if unbegun is not None:
                asyncio.get_running_loop().call_soon(self._cancelled, unbegun)
            else:
                self._send(run, {"t": "CANCEL_ITEM", "run": run_id, "fence": fence, "item": item})

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        run = self._held(run_id, fence)
        if run is None:
            return
        if run.start is None:
            self._send(run, {"t": "CLOSE", "run": run_id, "fence": fence, "cause": cause})
            return
        run.over = True  # no code of it has begun, and none will
        if run.host is not None:
            run.host.drop(run)
        asyncio.get_running_loop().call_soon(self._closed, run, cause)

    def drop(self, run_id: str, fence: int) -> None:
        run = self._held(run_id, fence)
        if run is not None:
            self._leave(run)

    async def aclose(self) -> None:
        for run in list(self._runs.values()):
            self._remove(run)
        self._waiting.clear()
        fetches = list(self._fetching.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
        await self._fleet.aclose()
        await self._starter.aclose()

    # -- inside -------------------------------------------------------------------------------------

    def _held(self, run_id: str, fence: int) -> HeldRun | None:
        run = self._runs.get(run_id)
        return run if run is not None and run.fence == fence else None

    def _send(self, run: HeldRun, message: dict[str, Any]) -> None:
        if run.host is not None and run.start is None:
            run.host.send(message)
        else:
            run.early.append(message)

    def _launch(self, launch: Launch) -> None:
        """Unless it is not wanted any more, or its host is about to go: then it begins in the run's next one."""
        run, attempt = launch.run, launch.attempt
        if run.unbegun.get(attempt.item) is launch and run.host is not None and run.host.takes_attempts:
            del run.unbegun[attempt.item]
            attempt.deadline = time.monotonic() + attempt.allowed
            run.host.launch(launch)

    def _cancelled(self, launch: Launch) -> None:
        """An attempt that was held back and will not start: for the executor it was running."""
        run, attempt = launch.run, launch.attempt
        if not run.over:
            error = ErrorInfo("E_CANCELLED", "CancelledError", f"step {attempt.item!r} was cancelled", retryable=False)
            self._listener.failed(*run.name, attempt.item, attempt.number, attempt.token, error, 0.0)

    def _closed(self, run: HeldRun, cause: str) -> None:
        """A run that was closed before its body began, unless it was dropped since."""
        if self._runs.get(run.run_id) is run:
            self._remove(run)
            error = ErrorInfo("E_CANCELLED", "Cancelled", cause, retryable=False)
            self._listener.turned(*run.name, 0, [], BodyEnd(BodyStatus.CANCELLED, error=error))

    def _remove(self, run: HeldRun) -> None:
        run.over = True
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    def _leave(self, run: HeldRun) -> None:
        self._remove(run)
        if run.host is not None:
            run.host.drop(run)

    async def _fetch(self, definition: Definition) -> None:
        """Bring the files of a definition, and place the runs that wait for them. Without them it tries again for as
        long as a run waits: none is at fault when the store is away or the disk is full.
        """
        patience = Patience("bundle_not_fetched", definition_id=definition[1])
        settle: Callable[[HeldRun], None] | None = None
        while settle is None and self._waiting_for(definition):
            try:
                program = self._programs[definition] = await self._starter.program(*definition)
            except Refused as exc:
                settle = partial(self._refused, error=_refusal(exc))
            except Exception as exc:  # noqa: BLE001  whatever it is, it is logged, and the runs have no part in it
                await patience.pause(exc)
            else:
                settle = partial(self._place, program=program)
        del self._fetching[definition]
        for run in self._waiting_for(definition):
            if settle is not None:
                settle(run)
        del self._waiting[definition]

    def _waiting_for(self, definition: Definition) -> list[HeldRun]:
        waiting = self._waiting[definition] = [run for run in self._waiting[definition] if not run.over]
        return waiting

    def _place(self, run: HeldRun, program: Program) -> None:
        self._fleet.place(run, program, 0 if run.start is None else run.start.losses)

    def _lost(self, runs: Sequence[HeldRun], reason: str, suspects: Collection[str]) -> None:
        unbegun = [(run.run_id, item) for run in runs for item in run.unbegun]
        for run in runs:
            self._remove(run)
        for suspected in (True, False):
            names = [run.name for run in runs if (run.run_id in suspects) is suspected]
            if names:
                self._listener.lost(names, reason, suspected=suspected, unbegun=unbegun)

    def _refused(self, run: HeldRun, error: ErrorInfo) -> None:
        self._remove(run)
        self._listener.diverged(*run.name, error)


def _refusal(exc: Refused) -> ErrorInfo:
    line = str(exc.place) if exc.place is not None else None
    return ErrorInfo(exc.code, "", exc.message, line, retryable=False)
