"""One step host: its life from spawn to end, its programs, and the runs in it.

A host serves runs until it is withdrawn (nothing new goes to it, runs without a running attempt are given
up) or gone. It judges nothing: `watch` decides about time, `hearing` about what the host says.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

import structlog

from anthares44.automation.wire import CREDIT_BYTES
from processors.executor.hosts.calls import start_messages
from processors.executor.hosts.causes import Cause
from processors.executor.hosts.held import Attempt, HeldRun, Launch
from processors.executor.hosts.leftovers import Leftovers
from processors.executor.hosts.link import Link
from processors.executor.hosts.messages import Blocked, Incoming
from processors.executor.hosts.output import Output
from processors.executor.hosts.process import HostProcess, Plan, describe_exit
from processors.executor.hosts.program import Load, Program
from processors.executor.hosts.settings import HostSettings
from schemas.records import ErrorInfo

LAST_WORDS_SECONDS = 0.3

_log = structlog.get_logger(__name__)


class Stage(Enum):
    STARTING = auto()
    SERVING = auto()
    WITHDRAWN = auto()
    STOPPING = auto()
    GONE = auto()


class Room(Enum):
    """Who may come in: everybody of the program's key, suspects only, or one run."""

    SHARED = auto()
    APART = auto()
    ALONE = auto()


class HostOwner(Protocol):
    """The fleet, as its hosts see it."""

    leftovers: "Leftovers[Host]"

    def host_loaded(self, host: "Host") -> None:
        """A program was imported in it."""

    def host_withdrawn(self, host: "Host") -> None:
        """The host takes no new runs."""

    def host_gone(self, host: "Host") -> None:
        """Its process has ended (stage STOPPING: we asked for it); its runs are given up next."""

    def host_empty(self, host: "Host") -> None:
        """The last run has left it."""

    def give_up(self, runs: Sequence[HeldRun], reason: str, suspects: Collection[str]) -> None:
        """The runs have no body any more. `suspects` are runs by whose doing that may be."""

    def refuse(self, run: HeldRun, error: ErrorInfo) -> None:
        """The run cannot begin in any host."""


class Host:
    """Made, assigned a program (a spare: later) and begun (a slow start: later), in any order."""

    def __init__(
        self,
        owner: HostOwner,
        settings: HostSettings,
        hear: "Callable[[Host, Incoming], None]",
        room: Room,
    ) -> None:
        self.room = room
        self.stage = Stage.STARTING
        self.runs: dict[str, HeldRun] = {}
        self.loads: dict[tuple[str, str], Load] = {}
        self.named: dict[tuple[str, str], float] = {}
        self.blocked: Blocked | None = None
        self.told_memory: int | None = None
        self.times_too_large = 0
        self.cause: Cause | None = None
        self.kill_cause = Cause.TIMEOUT
        self.culprits: set[str] = set()
        self.last_beat = self.began = self.empty_since = self.blocked_since = time.monotonic()
        self.next_deadline = self.kill_at = float("inf")
        self.output = Output(settings.output_lines_per_second, settings.output_line_bytes)
        self.owner = owner
        self._settings = settings
        self._process: HostProcess | None = None
        self._program: Program | None = None
        self._version: int | None = None
        self._welcomed = False
        self._words: list[str] = []
        self._link = Link(partial(hear, self), self._unlinked)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def memory(self) -> int:
        """Bytes that it holds in memory: as the system tells, or else itself."""
        seen = self._process.resident() if self._process is not None else None
        return seen or self.told_memory or 0

    @property
    def takes_suspects(self) -> bool:
        return self.room is Room.APART and self.takes_attempts

    @property
    def takes_attempts(self) -> bool:
        return self.stage is Stage.SERVING or self.stage is Stage.STARTING

    @property
    def begun(self) -> bool:
        return self._process is not None

    @property
    def is_at_rest(self) -> bool:
        """No run is in it, and none that has left it has an outcome to come."""
        return not self.runs and not self.owner.leftovers.owes(self)

    @property
    def is_sound(self) -> bool:
        """Whether a program was imported in it."""
        return any(load.done and load.error is None for load in self.loads.values())

    # -- life ---------------------------------------------------------------------------------------

    async def begin(self, plan: Plan) -> None:
        """Raises OSError when the process cannot be started."""
        self.began = self.last_beat = time.monotonic()
        self._process = HostProcess.spawn(plan, self.output)
        self._set_context()
        self._process.watch(self._exited)
        await self._process.drain()
        if self._process.returncode is not None:
            return  # so soon; its end is on its way
        await self._link.open(self._process.take_socket())

    def greeted(self, version: int) -> None:
        """It said HELLO; both sides speak this version of the frames."""
        self._version = version
        if self.stage is Stage.STARTING:
            self.stage = Stage.SERVING
        self._welcome()

    def note(self, words: str) -> None:
        """For the reason that its runs are given up with."""
        if words not in self._words:
            self._words.append(words)

    def withdraw(self, reason: str, culprit: str | None = None) -> None:
        """`culprit`: the run by whose doing, where that can be told."""
        if culprit is not None:
            self.culprits.add(culprit)
        if self.takes_attempts:
            self.stage = Stage.WITHDRAWN
            self.note(reason)
            _log.warning("step_host_withdrawn", reason=reason, **self.output.context)
            self.owner.host_withdrawn(self)
            self.give_up([run for run in self.runs.values() if not run.attempts], reason)

    def kill(self, reason: str, cause: Cause) -> None:
        """Its end follows from its process's."""
        self.note(reason)
        self.cause = self.cause or cause
        if self._process is not None:
            self._process.kill()
        else:
            self._finish()

    async def stop(self) -> None:
        """Ask it to end, then make it; returns when it is gone. Its runs are not reported."""
        if self.stage is Stage.GONE:
            return
        self.stage = Stage.STOPPING
        if self._process is None:
            self._finish()
            return
        self._link.send({"t": "DRAIN"})
        self._link.close()
        await self._process.stop(self._settings.stop_within)

    def _exited(self, code: int) -> None:
        if self.cause is None:
            self._died_by_itself(Cause.EXIT if code >= 0 else Cause.SIGNAL)
        self._words.insert(0, f"the step host ended ({describe_exit(code)})")
        if self._link.over:
            self._finish()
        else:
            self._link.expect_end(LAST_WORDS_SECONDS)  # what it finished before it died still counts

    def _unlinked(self, reason: str) -> None:
        """Without its link it is of no use. It is gone when both its link and its process are."""
        if self._process is None or self._process.returncode is not None:
            self._finish()
        else:
            self.note(reason)
            if self.cause is None and self._link.is_broken:
                self._died_by_itself(Cause.PROTOCOL)
            self._process.kill()

    def _died_by_itself(self, cause: Cause) -> None:
        """Whatever was held against somebody before, this may be another's doing."""
        self.cause = cause
        self.culprits.clear()

    def _finish(self) -> None:
        if self.stage is Stage.GONE:
            return
        self._link.close()
        self.owner.host_gone(self)
        stopping, self.stage = self.stage is Stage.STOPPING, Stage.GONE
        if not stopping:
            if self._version is None and self.output.last:
                self.note(f"before any code of the author's ran it said: {self.output.last}")
            reason = ": ".join(self._words)
            _log.warning("step_host_ended", reason=reason, cause=self.cause, runs=len(self.runs), **self.output.context)
            self.give_up(list(self.runs.values()), reason)
        self.owner.leftovers.owner_gone(self)

    # -- programs -----------------------------------------------------------------------------------

    def assign(self, program: Program) -> None:
        """WELCOME waits for it, since it carries a setting of the project."""
        self._program = program
        self._set_context()
        self._welcome()

    def settle_load(self, name: tuple[str, str], error: ErrorInfo | None) -> None:
        """A program is imported, or cannot be. Hosts without any are of use for refusing alone."""
        load = self.loads.get(name)
        if load is None or load.done:
            return
        if error is None:
            self.owner.host_loaded(self)
        for run in load.settle(error):
            if run.over:
                continue
            if error is None:
                self._start(run, load.program)
            else:
                self._forget(run)
                self.owner.refuse(run, error)
        self._note_empty()

    def _welcome(self) -> None:
        if self._program is None or self._version is None or self._welcomed:
            return
        self._welcomed = True
        settings = self._settings
        limits = {"result_bytes": settings.result_bytes, "items": settings.items, "credit_bytes": CREDIT_BYTES}
        exempt = [*settings.redact_exempt, *self._program.redact_exempt]
        self._link.send({"t": "WELCOME", "version": self._version, "limits": limits, "redact_exempt": exempt})
        for load in self.loads.values():
            self._ask_for(load)

    def _ask_for(self, load: Load) -> None:
        load.asked = time.monotonic()
        self._link.send(load.message())

    def _set_context(self) -> None:
        self.output.context = {"host": self.pid}
        if self._program is not None:
            self.output.context = {**self.output.context, "project": self._program.key.project_id}

    # -- runs ---------------------------------------------------------------------------------------

    def take(self, run: HeldRun, program: Program) -> None:
        """Start a run, or let it wait until its program is imported."""
        load = self.loads.get(program.name)
        if load is None:
            load = self.loads[program.name] = Load(program, time.monotonic())
            if self._welcomed:
                self._ask_for(load)
        if load.error is not None:
            self.owner.refuse(run, load.error)
            return
        run.host = self
        self.runs[run.run_id] = run
        if load.done:
            self._start(run, program)
        else:
            load.waiting.append(run)

    def send(self, message: dict[str, Any]) -> None:
        self._link.send(message)

    def launch(self, launch: Launch) -> None:
        self.note_attempt(launch.run, launch.attempt)
        self._link.send(launch.message)

    def note_attempt(self, run: HeldRun, attempt: Attempt) -> None:
        run.attempts[attempt.item] = attempt
        self.next_deadline = min(self.next_deadline, attempt.deadline)

    def drop(self, run: HeldRun) -> None:
        """Its attempts owe their outcome: what cannot be stopped goes on, until its own deadline at most."""
        self._leave_over(run)
        self._forget(run)
        self._note_empty()

    def give_up(self, runs: Iterable[HeldRun], reason: str) -> None:
        given_up = list(runs)
        for run in given_up:
            if self.stage is not Stage.GONE:
                self._leave_over(run)
            self._forget(run)
        if given_up:
            self.owner.give_up(given_up, reason, self._suspects(given_up))
        self._note_empty()

    def _suspects(self, given_up: Iterable[HeldRun]) -> Collection[str]:
        """The culprits, or everybody where those cannot be told; nobody before any code of an author's could run."""
        if self._version is None or self.cause is Cause.START:
            return ()
        return self.culprits or {run.run_id for run in given_up}

    def left_over(self, run_id: str, fence: int, attempt: Attempt) -> None:
        """It runs here for a run that has left. Its time counts from the actual start."""
        begun = self.named.get((run_id, attempt.item), 0.0)
        attempt.deadline = max(attempt.deadline, begun + attempt.allowed)
        self.owner.leftovers.add_owing(self, run_id, fence, attempt)

    def settle_late(self, run_id: str, item: str, attempt: tuple[int, int, str]) -> bool:
        """The outcome of an attempt (fence, number, token) that no run here waits for. Whether it was owed."""
        was_owed = self.owner.leftovers.settle(self, run_id, item, attempt)
        if was_owed:
            self._note_empty()
        return was_owed

    def attempt_over(self, run: HeldRun) -> None:
        """After an outcome was reported: in a withdrawn host a run at rest has nothing to wait for."""
        if self.stage is Stage.WITHDRAWN and not run.attempts and run.host is self:
            self.give_up([run], self._words[0])

    def _start(self, run: HeldRun, program: Program) -> None:
        start, run.start = run.start, None
        if start is None:
            raise ValueError(f"{run.run_id} was started before")
        for message in start_messages(start, program.workflow, program.version):
            self._link.send(message)
        early, run.early = run.early, []
        for message in early:
            self._link.send(message)

    def _forget(self, run: HeldRun) -> None:
        if self.runs.get(run.run_id) is run:
            del self.runs[run.run_id]
        run.host = None
        if run.start is None and not self._link.over:
            self._link.send({"t": "DROP", "run": run.run_id, "fence": run.fence})

    def _leave_over(self, run: HeldRun) -> None:
        for attempt in run.attempts.values():
            self.left_over(*run.name, attempt)

    def _note_empty(self) -> None:
        if self.is_at_rest and self.stage is not Stage.GONE:
            self.empty_since = time.monotonic()
            self.owner.host_empty(self)
