"""The processes of an installation: each role's real code on the adapters in memory, started again when it is gone."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.composition.hints import CommandHints
from processors.adapters.postgres.wakeups import Channel
from processors.executor.executor import Executor
from processors.ingest.ingest import Ingest
from processors.ingest.retries import Retries
from processors.ports.door import Acceptance, Answer
from processors.ports.streams import Record
from processors.relay.relay import run_relay
from processors.runtime.current_catalog import CurrentCatalog
from processors.scheduler.scheduler import Scheduler
from schemas.commands import StepCommand, decode_commands
from schemas.errors import Unavailable
from tests.simulation.bodies import SimulatedBodies
from tests.simulation.installation import DELAYS, TOPICS, PublishedCatalog, specs
from tests.simulation.memory.broker import Broker
from tests.simulation.memory.database import Database
from tests.simulation.memory.door import MemoryDoor
from tests.simulation.memory.ingest_log import MemoryIngestLog
from tests.simulation.memory.journal import MemoryJournal
from tests.simulation.memory.network import Network
from tests.simulation.memory.relay_store import MemoryRelayStore
from tests.simulation.memory.schedule import MemorySchedule
from tests.simulation.memory.storage import MemoryStorage
from tests.simulation.memory.streams import MemoryAdmin, MemoryConsumer, MemoryProducer
from tests.simulation.scenario import Scenario
from tests.simulation.virtual_time import Life, Process

DAY_SECONDS = 86_400.0
TRY_AGAIN_SECONDS = 0.5
MOST_RECORDS = 6


@dataclass(slots=True)
class Parts:
    """What roles are made of; a test that breaks a rule puts its own part here."""

    journal: Callable[[Database, str, float], MemoryJournal] = MemoryJournal
    ingest_log: Callable[[Database, str, float], MemoryIngestLog] = MemoryIngestLog
    schedule: Callable[[Database], MemorySchedule] = MemorySchedule
    relay_store: Callable[[Database, float], MemoryRelayStore] = MemoryRelayStore
    executor: Callable[..., Executor] = Executor
    ingest: Callable[..., Ingest] = Ingest


class Wakes:
    """Wake-ups between processes: late, sometimes lost, never wrong."""

    def __init__(self, network: Network, lost: float) -> None:
        self._network = network
        self.lost = lost
        self._listeners: list[tuple[Process, Mapping[Channel, Callable[[], None]]]] = []

    def listen(self, process: Process, wakes: Mapping[Channel, Callable[[], None]]) -> None:
        self._listeners = [one for one in self._listeners if one[0].is_alive] + [(process, wakes)]

    def wake(self, channel: Channel) -> None:
        for process, wakes in self._listeners:
            if channel in wakes and process.is_alive and not self._network.chance(self.lost):
                self._network.loop.later(process, self._network.delay(), wakes[channel])


class Site:
    """Everything that nodes share."""

    def __init__(
        self, scenario: Scenario, network: Network, database: Database, broker: Broker, parts: Parts, wakes: Wakes
    ) -> None:
        self.scenario = scenario
        self.network = network
        self.database = database
        self.broker = broker
        self.parts = parts
        self.wakes = wakes
        self.storage = MemoryStorage(network)
        self.make_bodies: Callable[[Executor], SimulatedBodies]
        self.on_death: Callable[[str, BaseException], None]

    def hints(self) -> CommandHints:
        return CommandHints(TOPICS.commands, self.wakes, MemoryProducer(self.broker))  # type: ignore[arg-type]


class Node:
    """One role on one machine, through all of its lives."""

    def __init__(self, site: Site, name: str, main: "Main") -> None:
        self.site = site
        self.name = name
        self.main = main
        self.lives = 0
        self.process = Process(name)
        self.process.life = Life.DEAD
        self.stop = asyncio.Event()
        self.door: MemoryDoor | None = None
        self.bodies: SimulatedBodies | None = None

    @property
    def is_up(self) -> bool:
        return self.process.is_alive

    def start(self) -> None:
        if self.is_up:
            return
        self.lives += 1
        self.process, self.stop, self.door, self.bodies = (
            Process(f"{self.name}.{self.lives}"),
            asyncio.Event(),
            None,
            None,
        )
        self.site.network.loop.spawn(self.process, self._live(self.process))

    async def _live(self, process: Process) -> None:
        while not self.stop.is_set():
            try:
                await self.main(self)
            except Unavailable:
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except Exception as exc:
                self.site.on_death(self.name, exc)
                raise
        self.site.network.loop.stop_process(process, Life.DEAD)

    def kill(self) -> None:
        self.site.network.loop.stop_process(self.process, Life.DEAD)
        self.site.broker.miss(self.process)

    def pause(self) -> None:
        self.site.network.loop.stop_process(self.process, Life.PAUSED)
        self.site.broker.miss(self.process)

    def resume(self) -> None:
        self.site.network.loop.resume_process(self.process)

    def ask_to_stop(self) -> None:
        self.stop.set()
        self.site.broker.wake(self.process)

    def listen(self, wakes: Mapping[Channel, Callable[[], None]]) -> None:
        self.site.wakes.listen(self.process, wakes)

    async def accept(self, item: Acceptance) -> Answer:
        if self.door is None:
            raise Unavailable("E_UNAVAILABLE", "the gateway is starting")
        return await self.door.accept(item)


Main = Callable[[Node], Coroutine[Any, Any, None]]


async def gateway(node: Node) -> None:
    site = node.site
    door = MemoryDoor(site.database, TOPICS.events, site.hints().granted, lambda: site.wakes.wake(Channel.OUTBOX))
    await door.open()
    node.door = door
    await node.stop.wait()


async def relay(node: Node) -> None:
    site = node.site
    store = site.parts.relay_store(site.database, site.scenario.relay_lease)
    node.listen({Channel.OUTBOX: store.wake})
    admin, topics = MemoryAdmin(site.broker), specs(site.scenario.partitions)
    await admin.ensure_topics(topics)
    await run_relay(store, MemoryProducer(site.broker), admin, node.name, node.stop, specs=topics)


async def ingest(node: Node) -> None:
    site = node.site
    log = site.parts.ingest_log(site.database, TOPICS.dead_letters, DAY_SECONDS)
    await log.open()
    catalog = CurrentCatalog(PublishedCatalog())  # type: ignore[arg-type]
    handler = site.parts.ingest(log, catalog, site.hints(), storage=site.storage, delays=DELAYS)
    handlers = {TOPICS.events: handler, **dict.fromkeys(DELAYS, Retries(handler))}
    readers = [
        MemoryConsumer(site.broker, f"ingest.{topic}", topic, one, log, MOST_RECORDS) for topic, one in handlers.items()
    ]
    await asyncio.gather(*(reader.run(node.stop) for reader in readers))


async def scheduler(node: Node) -> None:
    site = node.site
    made = Scheduler(site.parts.schedule(site.database), site.hints())
    node.listen({Channel.PENDING: made.wake})
    await made.run(node.stop)


async def executor(node: Node) -> None:
    site, scenario = node.site, node.site.scenario

    def tell() -> None:
        site.wakes.wake(Channel.OUTBOX)
        site.wakes.wake(Channel.ENDED)

    journal = site.parts.journal(site.database, node.name, scenario.lease)
    made = site.parts.executor(journal, _kind_of, TOPICS.run_events, scenario.slots, scenario.lease, tell)
    node.bodies = site.make_bodies(made)
    made.attach({"code": node.bodies, "yaml": node.bodies})

    async def take_commands(records: Sequence[Record]) -> None:
        told = decode_commands([record.value for record in records])
        made.hint([(one.run_id, one.fence) for one in told if isinstance(one, StepCommand)])

    node.listen({Channel.GRANTED: made.look_for_granted, Channel.MAIL: made.look_for_mail})
    reading = MemoryConsumer(site.broker, "executors", TOPICS.commands, take_commands, None, MOST_RECORDS)
    beside = asyncio.create_task(reading.run(node.stop))
    await made.run(node.stop)
    await beside


async def _kind_of(definition_id: int) -> str:
    return "code"


ROLES: Mapping[str, Main] = {
    "gateway": gateway,
    "relay": relay,
    "ingest": ingest,
    "scheduler": scheduler,
    "executor": executor,
}
