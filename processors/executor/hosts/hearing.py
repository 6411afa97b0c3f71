"""What a host says, turned into calls of the listener: one small function a message type.

A message of a run (or of another life of it) that the host does not hold is ignored. The outcome of an attempt whose
run has left is told as late, once; one that was stopped in time, or whose outcome was told before, has nothing to tell.
"""

import time
from collections.abc import Callable
from typing import Any

import structlog

from anthares44.automation.wire import WireError, agree
from processors.engine.requests import StepRequest
from processors.executor.hosts import messages as said
from processors.executor.hosts.held import Attempt, HeldRun
from processors.executor.hosts.host import Host
from processors.executor.hosts.values import checked_end, value_problem
from processors.ports.bodies import BodyListener
from schemas.records import ErrorInfo

STOPPED = "E_CANCELLED"

_log = structlog.get_logger(__name__)


class Hearing:
    """`grace` (seconds) is how much later than the host itself we call an attempt overdue."""

    def __init__(self, listener: BodyListener, grace: float) -> None:
        self._listener = listener
        self._grace = grace
        self._handlers: dict[type, Callable[[Host, Any], None]] = {
            said.Turn: self._turn,
            said.Done: self._done,
            said.Failed: self._failed,
            said.Diverged: self._diverged,
            said.Beat: _beat,
            said.Log: _line,
            said.Progress: _progress,
            said.Hello: _hello,
            said.Loaded: _loaded,
            said.LoadFailed: _load_failed,
            said.Bye: _bye,
        }

    def hear(self, host: Host, message: said.Incoming) -> None:
        self._handlers[type(message)](host, message)

    def _turn(self, host: Host, message: said.Turn) -> None:
        run = _held(host, message)
        for wanted in message.requests:
            if isinstance(wanted, StepRequest) and wanted.started:
                allowed = wanted.timeout + self._grace
                begun = Attempt(wanted.item, 1, wanted.token or "", allowed, time.monotonic() + allowed)
                if run is not None:
                    host.note_attempt(run, begun)
                else:  # it crossed the drop
                    host.left_over(message.run, message.fence, begun)
        if run is not None:
            self._listener.turned(run.run_id, run.fence, message.after, message.requests, checked_end(message.ended))

    def _done(self, host: Host, message: said.Done) -> None:
        run = _held(host, message)
        problem = value_problem(message.value)
        if run is None or not _was_running(run, message):
            self._tell_late(host, message, None if problem else message.value, problem)
            return
        if problem is not None:
            self._report_failure(run, message, problem)
        else:
            self._listener.succeeded(
                *run.name, message.item, message.attempt, message.token, message.value, message.cost
            )
        host.attempt_over(run)

    def _failed(self, host: Host, message: said.Failed) -> None:
        run, error = _held(host, message), said.error_of(message.error)
        if run is None or not _was_running(run, message):
            self._tell_late(host, message, None, error)
            return
        if message.lingers:
            host.owner.leftovers.add(host, run.run_id, message.item, time.monotonic() + self._grace)
        self._report_failure(run, message, error)
        host.attempt_over(run)

    def _tell_late(
        self, host: Host, message: said.Done | said.Failed, value: str | None, error: ErrorInfo | None
    ) -> None:
        owed = (message.fence, message.attempt, message.token)
        if not host.settle_late(message.run, message.item, owed) or (error is not None and error.code == STOPPED):
            return
        status = "succeeded" if error is None else "failed"
        self._listener.late(
            message.run, message.fence, message.item, message.attempt, status, value, error, message.cost
        )

    def _report_failure(self, run: HeldRun, message: said.Done | said.Failed, error: ErrorInfo) -> None:
        self._listener.failed(*run.name, message.item, message.attempt, message.token, error, message.cost)

    def _diverged(self, host: Host, message: said.Diverged) -> None:
        run = _held(host, message)
        if run is not None:
            self._listener.diverged(*run.name, said.divergence(message))


def _held(host: Host, message: said.Turn | said.Done | said.Failed | said.Diverged) -> HeldRun | None:
    run = host.runs.get(message.run)
    return run if run is not None and run.fence == message.fence else None


def _was_running(run: HeldRun, message: said.Done | said.Failed) -> bool:
    """Whether this very attempt was running; it is not any more."""
    attempt = run.attempts.get(message.item)
    if attempt is None or attempt.token != message.token or attempt.number != message.attempt:
        return False
    del run.attempts[message.item]
    return True


def _beat(host: Host, message: said.Beat) -> None:
    now = time.monotonic()
    host.last_beat, host.told_memory = now, message.rss
    host.named = {(run, item): now - age for run, item, age in message.tokens}
    host.owner.leftovers.heard(host, host.named)
    blocked = message.blocked
    if blocked is None or host.blocked is None or blocked.run != host.blocked.run:
        host.blocked_since = now
    host.blocked = blocked


def _line(host: Host, message: said.Log) -> None:
    where = {"run_id": message.run, "step_id": message.item}
    given = {name: text for name, text in where.items() if text is not None}
    host.output.line(message.stream or message.level or "log", message.text, **given)


def _progress(host: Host, message: said.Progress) -> None:
    """A sign of life of the attempt, no more."""
    _log.debug("step_progress", run_id=message.run, step_id=message.item, host=host.pid)


def _hello(host: Host, message: said.Hello) -> None:
    version = agree(message.versions)
    if message.language != "python":
        raise WireError(f"a host for {message.language[:40]!r} where one for 'python' was started")
    host.last_beat = time.monotonic()
    host.greeted(version)


def _loaded(host: Host, message: said.Loaded) -> None:
    host.settle_load((message.workflow, message.version), None)


def _load_failed(host: Host, message: said.LoadFailed) -> None:
    host.settle_load((message.workflow, message.version), said.load_error(message))


def _bye(host: Host, message: said.Bye) -> None:
    if message.reason:
        host.note(f"it said: {message.reason[:300]}")
