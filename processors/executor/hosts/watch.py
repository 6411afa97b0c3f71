"""The clock of the hosts. An attempt past its timeout and the grace, by the host's own count of its age, has failed.

Then, as after a silence, a loop that its body blocks, or code that runs on after its attempt, the host is not
trusted: withdrawn, and killed when its other attempts could have ended, `longest_kill_delay` at most. A loop
that a step blocks within its timeout: withdrawn alone. No HELLO, or an import that does not end: killed.
"""

import time
from collections.abc import Iterable

from processors.executor.hosts.held import Attempt, HeldRun
from processors.executor.hosts.host import Host, Stage
from processors.executor.hosts.messages import Blocked
from processors.executor.hosts.settings import HostSettings
from processors.ports.bodies import BodyListener
from schemas.records import ErrorInfo

FOREVER = float("inf")


class Watch:
    """`check` is called every `check_every` seconds for the hosts there are."""

    def __init__(self, listener: BodyListener, settings: HostSettings) -> None:
        self._listener = listener
        self._settings = settings
        self._checked = time.monotonic()

    def check(self, hosts: Iterable[Host]) -> None:
        now = time.monotonic()
        late, self._checked = now - self._checked > 3 * self._settings.check_every, now
        for host in hosts:
            if late:
                host.last_beat = max(host.last_beat, now - self._settings.silence / 2)
                continue  # we were held up ourselves: what the hosts said meanwhile is read first
            self._check_host(host, now)

    def leftover(self, host: Host, run_id: str, item: str, now: float) -> None:
        """Code of an attempt that is over runs on past its deadline."""
        if host.stage in {Stage.STARTING, Stage.SERVING}:
            host.withdraw(f"step {item!r} of {run_id} runs on after its timeout, and a thread cannot be stopped")
            self._plan_kill(host, now)

    def _check_host(self, host: Host, now: float) -> None:
        if not host.begun or host.stage in {Stage.STOPPING, Stage.GONE}:
            return
        if now >= host.kill_at:
            host.kill_at = FOREVER
            host.kill("it did not end its last attempts in time")
        elif host.stage is Stage.STARTING:
            if now - host.began > self._settings.hello_within:
                host.kill(f"it said nothing within {self._settings.hello_within:g} s of its start")
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
            host.kill(message)

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
            self._plan_kill(host, now)

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
        host.withdraw(message)
        host.attempt_over(run)

    def _plan_kill(self, host: Host, now: float) -> None:
        ends = [attempt.deadline for run in host.runs.values() for attempt in run.attempts.values()]
        host.kill_at = min(host.kill_at, max(ends, default=now), now + self._settings.longest_kill_delay)
        if host.kill_at <= now:
            host.kill_at = FOREVER
            host.kill("it was ended")

    # -- pulse --------------------------------------------------------------------------------------

    def _check_pulse(self, host: Host, now: float) -> None:
        if host.stage is not Stage.SERVING:
            return
        silence, blocked = self._settings.silence, host.blocked
        if now - host.last_beat > silence:
            host.withdraw(f"it gave no sign of life for {silence:g} s")
            self._plan_kill(host, now)
        elif blocked is not None and now - host.blocked_since > silence:
            self._loop_blocked(host, blocked, now)

    def _loop_blocked(self, host: Host, blocked: Blocked, now: float) -> None:
        """A step that we know of has its timeout. Another has not been told of yet, since its turn cannot be sent."""
        where = f" at {blocked.file}:{blocked.line}" if blocked.file else ""
        what = f"step {blocked.item!r}" if blocked.item is not None else "the body"
        reason = f"{what} of {blocked.run} blocks the event loop of its host{where}"
        suspect = host.runs.get(blocked.run)
        if suspect is not None and blocked.item in suspect.attempts:
            host.withdraw(reason)
            return
        if suspect is not None:
            host.give_up([suspect], reason)  # by itself, before its neighbours: they did nothing
        host.withdraw(reason)
        self._plan_kill(host, now)
