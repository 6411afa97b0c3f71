"""The clock of the hosts. An attempt past its timeout and the grace, by the host's own count of its age, has failed.

Then, as after a silence, a loop that its body blocks, or code that runs on after its attempt, the host is not
trusted: withdrawn, and killed when its other attempts could have ended, `longest_kill_delay` at most. A loop
that a step blocks within its timeout: withdrawn alone. No HELLO, an import that does not end, or too much memory at
two looks: killed. Where the run at fault is known, its neighbours are not suspected.
"""

import time
from collections.abc import Iterable

import structlog

from processors.executor.hosts.causes import Cause
from processors.executor.hosts.held import Attempt, HeldRun
from processors.executor.hosts.host import Host, Stage
from processors.executor.hosts.messages import Blocked
from processors.executor.hosts.settings import MB, HostSettings
from processors.ports.bodies import BodyListener
from processors.ports.measures import Measures
from schemas.records import ErrorInfo

FOREVER = float("inf")
LOOKS_TOO_LARGE = 2

_log = structlog.get_logger(__name__)


class Watch:
    """`check` is called every `check_every` seconds for the hosts there are."""

    def __init__(self, listener: BodyListener, settings: HostSettings, measures: Measures) -> None:
        self._listener = listener
        self._settings = settings
        self._measures = measures
        self._checked = self._looked = time.monotonic()

    def check(self, hosts: Iterable[Host]) -> None:
        now = time.monotonic()
        late, self._checked = now - self._checked > 3 * self._settings.check_every, now
        looks = now - self._looked >= self._settings.look_every
        self._looked = now if looks else self._looked
        for host in hosts:
            if late:
                host.last_beat = max(host.last_beat, now - self._settings.silence / 2)
                continue  # we were held up ourselves: what the hosts said meanwhile is read first
            if host.begun and host.stage not in {Stage.STOPPING, Stage.GONE}:
                self._check_host(host, now)
                if looks and self._is_too_large(host):
                    self._end_too_large(host)

    def leftover(self, host: Host, run_id: str, item: str, now: float) -> None:
        """Code of an attempt that is over runs on past its deadline."""
        if host.stage in {Stage.STARTING, Stage.SERVING, Stage.WITHDRAWN}:
            message = f"step {item!r} of {run_id} runs on after its timeout, and a thread cannot be stopped"
            host.withdraw(message, culprit=run_id)
            self._plan_kill(host, now, Cause.TIMEOUT)

    def died(self, host: Host) -> None:
        """Its process has ended, and nobody had asked it to."""
        self._measures.count("host_deaths_total", 1, host.cause or Cause.EXIT)

    def _check_host(self, host: Host, now: float) -> None:
        if now >= host.kill_at:
            host.kill_at = FOREVER
            host.kill("it did not end its last attempts in time", host.kill_cause)
        elif host.stage is Stage.STARTING:
            if now - host.began > self._settings.hello_within:
                host.kill(f"it said nothing within {self._settings.hello_within:g} s of its start", Cause.START)
        else:
            self._check_loads(host, now)
            if now >= host.next_deadline:
                self._check_attempts(host, now)
            self._check_pulse(host, now)

    def _check_loads(self, host: Host, now: float) -> None:
        within = self._settings.load_within
        for name, load in list(host.loads.items()):
            if load.done or now - load.asked <= within:
                continue
            message = f"importing {load.program.entry} did not end within {within:g} s; move what it does into steps"
            host.settle_load(name, ErrorInfo("E_BUNDLE_IMPORT", "", message, load.program.entry, retryable=False))
            host.withdraw(message)
            host.kill(message, Cause.IMPORT)

    # -- attempts -----------------------------------------------------------------------------------

    def _check_attempts(self, host: Host, now: float) -> None:
        host.next_deadline = FOREVER
        overdue = []
        for run in host.runs.values():
            for attempt in run.attempts.values():
                if attempt.deadline <= now:
                    self._ask_pulse(host, run, attempt, now)
                if attempt.deadline <= now:
                    overdue.append((run, attempt))
                else:
                    host.next_deadline = min(host.next_deadline, attempt.deadline)
        for run, attempt in overdue:
            self._overdue(host, run, attempt)
        if overdue:
            self._plan_kill(host, now, Cause.TIMEOUT)

    def _ask_pulse(self, host: Host, run: HeldRun, attempt: Attempt, now: float) -> None:
        """The time runs from the actual start: a function may have waited for a thread, or its end is on its way."""
        if now - host.last_beat > self._settings.silence:
            return
        begun = host.named.get((run.run_id, attempt.item))
        attempt.deadline = now + self._settings.grace if begun is None else begun + attempt.allowed

    def _overdue(self, host: Host, run: HeldRun, attempt: Attempt) -> None:
        del run.attempts[attempt.item]
        host.owner.leftovers.add(host, run.run_id, attempt.item, FOREVER)
        timeout = attempt.allowed - self._settings.grace
        blocked = host.blocked
        where = None
        message = f"step {attempt.item!r} ran past its timeout of {timeout:g} s and could not be stopped"
        if blocked is not None and (blocked.run, blocked.item) == (run.run_id, attempt.item):
            where = f"{blocked.file}:{blocked.line}" if blocked.file else None
            message += "; it blocks the event loop: await, or use a plain function, which runs in a thread"
        error = ErrorInfo("E_STEP_TIMEOUT", "StepTimeout", message, where)
        # Told before the withdrawal gives the run up: a failure that comes after a loss belongs to no attempt any more.
        self._listener.failed(*run.name, attempt.item, attempt.number, attempt.token, error, attempt.allowed)
        host.withdraw(message, culprit=run.run_id)
        host.attempt_over(run)

    def _plan_kill(self, host: Host, now: float, cause: Cause) -> None:
        host.kill_cause = cause
        ends = [attempt.deadline for run in host.runs.values() for attempt in run.attempts.values()]
        host.kill_at = min(host.kill_at, max(ends, default=now), now + self._settings.longest_kill_delay)
        if host.kill_at <= now:
            host.kill_at = FOREVER
            host.kill("it was ended", cause)

    # -- pulse --------------------------------------------------------------------------------------

    def _check_pulse(self, host: Host, now: float) -> None:
        if host.stage is not Stage.SERVING:
            return
        silence, blocked = self._settings.silence, host.blocked
        if now - host.last_beat > silence:
            host.withdraw(f"it gave no sign of life for {silence:g} s")
            self._plan_kill(host, now, Cause.SILENCE)
        elif blocked is not None and now - host.blocked_since > silence:
            self._loop_blocked(host, blocked, now)

    def _loop_blocked(self, host: Host, blocked: Blocked, now: float) -> None:
        """A step that we know of has its timeout. Another has not been told of yet, since its turn cannot be sent."""
        where = f" at {blocked.file}:{blocked.line}" if blocked.file else ""
        what = f"step {blocked.item!r}" if blocked.item is not None else "the body"
        reason = f"{what} of {blocked.run} blocks the event loop of its host{where}"
        suspect = host.runs.get(blocked.run)
        host.withdraw(reason, culprit=blocked.run)
        if suspect is None or blocked.item not in suspect.attempts:
            if suspect is not None:
                host.give_up([suspect], reason)
            self._plan_kill(host, now, Cause.BLOCKED)

    # -- memory -------------------------------------------------------------------------------------

    def _is_too_large(self, host: Host) -> bool:
        """At so many looks in a row: what is let go of at once is no reason to end a host."""
        limit = self._settings.memory_bytes
        is_over = bool(limit) and host.memory > limit
        host.times_too_large = host.times_too_large + 1 if is_over else 0
        return host.times_too_large == LOOKS_TOO_LARGE

    def _end_too_large(self, host: Host) -> None:
        limit, seen, culprit = self._settings.memory_mb, host.memory // MB, _grower(host)
        in_flight = [f"{run.run_id} {item}" for run in host.runs.values() for item in run.attempts]
        _log.error(
            "step_host_too_large",
            **{**host.output.context, "pid": host.pid, "rss_mb": seen, "limit_mb": limit},
            in_flight=in_flight,
            suspect=culprit,
        )
        self._measures.count("host_memory_kills_total")
        if culprit is not None:
            host.culprits.add(culprit)
        host.kill(f"it held {seen} MB of memory, and its limit is {limit} MB (step_memory_mb)", Cause.MEMORY)


def _grower(host: Host) -> str | None:
    """The run whose code is seen at work: it holds the loop, or nobody else has an attempt in flight."""
    if host.blocked is not None:
        return host.blocked.run
    at_work = {run.run_id for run in host.runs.values() if run.attempts} | host.owner.leftovers.runs_in(host)
    return at_work.pop() if len(at_work) == 1 else None
