"""One simulation from its seed: everything is made, everything happens, everything that must hold is checked.

A broken invariant ends it as `Broken`, which tells the name, the seed, the virtual time, the last events, and the
command that runs it again.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from processors.executor.executor import Executor
from schemas.relay_numbers import SEQ_HEADER
from tests.simulation.bodies import SimulatedBodies
from tests.simulation.book import Book
from tests.simulation.faults import Faults
from tests.simulation.installation import DELAYS, LOOSE, ORDERED, PROJECT, TOPICS, specs
from tests.simulation.invariants import NO_ROLE_DIES, Invariants, Violation
from tests.simulation.memory.broker import Broker
from tests.simulation.memory.database import Database
from tests.simulation.memory.network import Network
from tests.simulation.memory.tables import LiveRun, Queue
from tests.simulation.nodes import ROLES, Node, Parts, Site, Wakes
from tests.simulation.people import People
from tests.simulation.scenario import CALM_AT, Scenario, draw
from tests.simulation.trace import KEPT, Trace
from tests.simulation.virtual_time import SimulatedLoop, simulated

NODES_PER_ROLE = 2
LONGEST_END = 400.0  # virtual seconds after the faults
LOOK_SECONDS = 2.0
QUIET_LOOKS = 4  # something that nobody was promised may still be under way


class Broken(AssertionError):
    """`invariant` is the name of what did not hold."""

    def __init__(self, invariant: str, report: str) -> None:
        super().__init__(report)
        self.invariant = invariant


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulation that held came to."""

    digest: str
    events: int
    steps: int
    virtual_seconds: float
    runs: int
    lines: list[str]
    ages: Counter[str] = field(default_factory=Counter)


class _Witnesses(Invariants):
    """The invariants, with the book beside them."""

    book: Book

    def made(self, live: LiveRun) -> None:
        super().made(live)
        self.book.run_made(live)


class Simulation:
    def __init__(self, scenario: Scenario, parts: Parts, keep: int | None) -> None:
        self.scenario = scenario
        self.dice = random.Random(scenario.seed ^ 0x5EED)
        self.loop = SimulatedLoop(self.dice)
        self.trace = Trace(self.loop.time, keep)
        self.violation: Violation | None = None
        limits = {(PROJECT, ORDERED): scenario.limits["ordered"], (PROJECT, LOOSE): scenario.limits["loose"]}
        self.invariants = _Witnesses(self.trace, limits, SEQ_HEADER, self._break)
        self.book = self.invariants.book = Book(scenario, self.invariants, self.loop.time)
        self.network = Network(self.loop, self.dice, scenario.weather)
        self.database = Database(self.network, self.invariants)
        for (project, name), limit in limits.items():
            self.database.tables.queues[project, name] = Queue(limit, name == ORDERED, scenario.max_attempts)
        self.broker = Broker(self.network, self.invariants.record_written)
        self.broker.ensure(specs(scenario.partitions))
        self.broker.lossy_topics = frozenset({TOPICS.events, TOPICS.commands, *DELAYS})
        wakes = Wakes(self.network, scenario.lost_wakes)
        self.site = Site(scenario, self.network, self.database, self.broker, parts, wakes)
        self.site.make_bodies, self.site.on_death = self._bodies, self._died
        self.nodes = [
            Node(self.site, f"{role}-{n}", main) for role, main in ROLES.items() for n in range(1, NODES_PER_ROLE + 1)
        ]
        gateways = [node for node in self.nodes if node.name.startswith("gateway")]
        self.people = People(self.site, self.book, gateways)
        self.faults = Faults(self.site, self.nodes, self.people, self.book, self.trace)

    def _bodies(self, executor: Executor) -> SimulatedBodies:
        return SimulatedBodies(self.network, executor.listener, self.book.script_of, self.invariants)

    def _break(self, violation: Violation) -> None:
        self.violation = self.violation or violation
        self.loop.stop()

    def _died(self, name: str, why: BaseException) -> None:
        if self.violation is None:
            self._break(Violation(NO_ROLE_DIES, f"{name}: {why!r}"))

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that nobody caught, in a server or in a role."""
        error = context.get("exception")
        if self.violation is None:
            message = f"{context['message']}: {error!r}"
            self._break(error if isinstance(error, Violation) else Violation(NO_ROLE_DIES, message))

    def run(self) -> None:
        self.loop.set_exception_handler(self._failed)
        main = self.loop.create_task(self._story())
        main.add_done_callback(lambda _: self.loop.stop())
        try:
            asyncio.events._set_running_loop(None)
            self.loop.run_forever()
            if self.violation is not None:
                raise self.violation
            main.result()
        finally:
            self.loop.bury()
            self.loop.close()

    async def _story(self) -> None:
        start = self.loop.time()
        for node in self.nodes:
            self.network.after(self.network.between(0.0, 0.3), node.start)
        for sending in self.scenario.sendings:
            for _ in range(sending.copies):
                self.network.after(sending.at, self._send, sending)
        for fault in self.scenario.faults:
            self.network.after(fault.at, self.faults.strike, fault)
        await asyncio.sleep(CALM_AT)
        self.faults.calm()
        quiet = 0
        while quiet < QUIET_LOOKS and self.loop.time() - start < CALM_AT + LONGEST_END:
            await asyncio.sleep(LOOK_SECONDS)
            quiet = 0 if self.book.open_promises(self.database.tables) else quiet + 1
        self.book.check_end(self.database.tables)

    def _send(self, sending: Any) -> None:
        self.loop.spawn(self.loop.world, self.people.send(sending))


@contextmanager
def _told(trace: Trace) -> Iterator[None]:
    """Log lines of product code belong to the story."""

    def keep(_: Any, __: str, event: MutableMapping[str, Any]) -> Any:
        trace.note("log", event.pop("event"), *(f"{name}={value}" for name, value in event.items()))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def simulate(seed: int, parts: Parts | None = None, keep: int | None = KEPT, faults: Sequence[str] = ()) -> Outcome:
    """Raises `Broken`. `keep` bounds the events that are told (None: all), `faults` are the kinds (none: any)."""
    scenario = draw(seed, faults)
    made = Simulation(scenario, parts or Parts(), keep)
    chance = random.Random(seed ^ 0xC4A)
    with simulated(made.loop, chance), _told(made.trace):
        try:
            made.run()
        except Violation as exc:
            raise Broken(exc.invariant, report(scenario, made, exc, faults)) from exc
    return Outcome(
        made.trace.digest,
        made.trace.count,
        made.loop.steps,
        made.loop.now,
        len(made.invariants.ended_runs),
        made.trace.lines(),
        Counter(
            refused=len(made.invariants.too_old),
            late=sum(made.invariants.is_late.values()),
            timely=list(made.invariants.is_late.values()).count(False),
        ),
    )


def report(scenario: Scenario, made: Simulation, why: Violation, kinds: Sequence[str]) -> str:
    faults = ", ".join(f"{fault.kind} at {1000 + fault.at:.2f}" for fault in scenario.faults)
    only = f" --faults {','.join(kinds)}" if kinds else ""
    return "\n".join(
        [
            f"broken: {why}",
            f"seed {scenario.seed}, virtual time {made.loop.now:.6f}; faults: {faults}",
            "the last events:",
            *made.trace.lines(),
            f"run it again: python -m tests.simulation --seed {scenario.seed}{only}",
        ]
    )
