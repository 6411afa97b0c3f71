"""Everything that moves runs, in one place: executors that can be stopped or killed, a scheduler, and the log."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from processors.adapters.postgres.journal import PostgresJournal
from processors.executor.executor import Executor
from processors.ports.bodies import BodyStart
from processors.ports.measures import Measures
from processors.ports.runs import Grant, NewRun
from processors.scheduler.scheduler import Scheduler
from tests.integration.executor.scripted_bodies import Script, ScriptedBodies
from tests.integration.log.lab import DEAD_LETTERS, Lab
from tests.support.waiting import until

RUN_EVENTS = "t.run-events"


async def always_code(definition_id: int) -> str:
    return "code"


class Working:
    """One executor at work. `kill` is what a SIGKILL leaves behind: a session that nobody renews."""

    def __init__(self, journal: PostgresJournal, executor: Executor, bodies: ScriptedBodies) -> None:
        self.journal, self.executor, self.bodies = journal, executor, bodies
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(executor.run(self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def is_running(self) -> bool:
        return not self._task.done()


class Works:
    """`script` is what every run does, unless a test says otherwise by run."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.script: Script = []
        self.scripts: dict[str, Script] = {}
        self._working: list[Working] = []
        self._scheduler: tuple[asyncio.Event, asyncio.Task[None]] | None = None

    async def executor(
        self,
        owner: str = "executor-1",
        *,
        slots: int = 500,
        lease: float = 30.0,
        kind_of: Callable[[int], Any] = always_code,
        measures: Measures | None = None,
        gates: Sequence[str] = (),
    ) -> Working:
        """`gates` are the steps that wait from its first moment on."""
        journal = PostgresJournal(self.lab.dsn, owner, lease, DEAD_LETTERS)
        executor = Executor(journal, kind_of, RUN_EVENTS, slots, lease, measures=measures)
        bodies = ScriptedBodies(executor.listener, self._script_of)
        for name in gates:
            bodies.gate(name)
        executor.attach({"code": bodies, "yaml": bodies})
        working = Working(journal, executor, bodies)
        self._working.append(working)
        await until(lambda: journal.lease_ends > 0, "the session is open")
        return working

    def schedule(self) -> Measures:
        """A scheduler that hints every executor, as commands on Kafka would."""
        stop, measures = asyncio.Event(), Measures()
        scheduler = Scheduler(self.lab.schedule(measures), self, measures)
        self._scheduler = (stop, asyncio.create_task(scheduler.run(stop)))
        return measures

    def granted(self, grants: Sequence[Grant]) -> None:
        for working in self._working:
            if working.is_running:
                working.executor.hint([(grant.run_id, grant.fence) for grant in grants])

    async def make(self, *runs: NewRun) -> None:
        self.granted(await self.lab.make(runs))

    async def ended(self, count: int = 1, seconds: float = 20.0) -> list[dict[str, Any]]:
        """All that have ended, once there are so many."""

        async def are_there() -> bool:
            return bool(await self.lab.value("select count(*) >= %s from automation.runs_ended", count))

        await until(are_there, f"{count} runs have ended", seconds)
        return await self.lab.rows("select * from automation.runs_ended order by run_id")

    async def log(self, run_id: str) -> list[tuple[str, int, str]]:
        rows = await self.lab.rows(
            "select step_id, attempt, status from automation.step_attempts where run_id = %s order by seq", run_id
        )
        return [(row["step_id"], row["attempt"], row["status"]) for row in rows]

    async def state(self, run_id: str) -> str:
        return str(await self.lab.value("select state from automation.runs where run_id = %s", run_id))

    async def is_in(self, run_id: str, state: str) -> None:
        async def is_there() -> bool:
            return await self.state(run_id) == state

        await until(is_there, f"{run_id} is {state}", 10)

    async def aclose(self) -> None:
        if self._scheduler is not None:
            stop, task = self._scheduler
            stop.set()
            await task
        for working in self._working:
            if working.is_running:
                await working.stop()

    def _script_of(self, run: BodyStart) -> Script:
        return self.scripts.get(run.run_id, self.script)
