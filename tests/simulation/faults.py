"""What goes wrong: each fault does one thing, and what it breaks is mended by itself after a while."""

from collections.abc import Callable, Mapping

from tests.simulation.book import Book
from tests.simulation.installation import TOPICS, specs
from tests.simulation.nodes import Node, Site
from tests.simulation.people import People
from tests.simulation.scenario import Fault
from tests.simulation.trace import Trace
from tests.simulation.virtual_time import Life, Process

SLOWEST_STOP = 10.0


class Faults:
    """`strike` lets one happen; `calm` ends all that still lasts."""

    def __init__(self, site: Site, nodes: list[Node], people: People, book: Book, trace: Trace) -> None:
        self._site = site
        self._nodes = nodes
        self._people = people
        self._book = book
        self._trace = trace
        self._kinds: Mapping[str, Callable[[float], None]] = {
            "crash": self._crash,
            "pause": self._pause,
            "stop": self._stop,
            "rebalance": self._rebalance,
            "restart_database": lambda seconds: site.database.restart(min(seconds, 3.0)),
            "break_connection": self._break_connection,
            "jump_clock": self._jump_clock,
            "slow_commits": self._slow_commits,
            "bumpy_network": self._bumpy_network,
            "long_transaction": self._long_transaction,
            "broker_away": self._broker_away,
            "broker_lost": self._broker_lost,
            "topic_made_again": self._topic_made_again,
            "record_lost": self._record_lost,
            "flaky_broker": self._flaky_broker,
            "repeated_delivery": self._repeated_delivery,
            "storage_away": self._storage_away,
            "host_lost": self._host_lost,
            "liveness_lost": self._liveness_lost,
            "cancel": lambda _: people.cancel(),
        }

    def strike(self, fault: Fault) -> None:
        self._trace.note("fault", fault.kind, fault.seconds)
        self._kinds[fault.kind](fault.seconds)

    def calm(self) -> None:
        self._trace.note("calm")
        site = self._site
        site.network.weather.slow = site.network.weather.bumpy = 0.0
        site.broker.flaky = site.broker.repeating = site.broker.losing = 0.0
        site.broker.come_back()
        site.storage.is_up = True
        for node in self._nodes:
            node.resume()
            node.start()

    def _any(self) -> Node | None:
        """A running node; rather one that has something under way."""
        up = [node for node in self._nodes if node.process.life is Life.RUNNING]
        if self._site.network.chance(0.5):
            busy = {one.process: None for one in self._site.database.connections if one.waiting}
            up = [node for node in up if node.process in busy] or up
        return up[self._site.network.pick(len(up))] if up else None

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        self._site.network.after(seconds, work)

    def _crash(self, seconds: float) -> None:
        node = self._any()
        if node is not None:
            self._trace.note("killed", node.process.name)
            node.kill()
            self._later(seconds, node.start)

    def _pause(self, seconds: float) -> None:
        node = self._any()
        if node is not None:
            self._trace.note("paused", node.process.name)
            node.pause()
            self._later(seconds, node.resume)

    def _stop(self, seconds: float) -> None:
        """As an orchestrator does it: killed where it takes too long."""
        node = self._any()
        if node is None:
            return
        self._trace.note("stopped", node.process.name)
        process = node.process
        node.ask_to_stop()
        self._later(SLOWEST_STOP, lambda: self._kill_late(node, process))
        self._start_after(node, process, seconds)

    def _start_after(self, node: Node, process: Process, seconds: float) -> None:
        if process.is_alive:
            self._later(seconds, lambda: self._start_after(node, process, seconds))
        else:
            node.start()

    def _kill_late(self, node: Node, process: Process) -> None:
        if node.process is process and process.is_alive:
            self._trace.note("killed", process.name)
            node.kill()

    def _rebalance(self, seconds: float) -> None:
        groups = self._site.broker.groups()
        if groups:
            self._site.broker.rebalance(groups[self._site.network.pick(len(groups))])

    def _break_connection(self, seconds: float) -> None:
        """Rather one on which somebody waits for an answer."""
        connections = list(self._site.database.connections)
        if self._site.network.chance(0.7):
            connections = [one for one in connections if one.waiting] or connections
        if connections:
            connections[self._site.network.pick(len(connections))].break_now()

    def _jump_clock(self, seconds: float) -> None:
        self._site.database.skew += seconds if self._site.network.chance(0.5) else -seconds

    def _slow_commits(self, seconds: float) -> None:
        weather, before = self._site.network.weather, self._site.network.weather.slow
        weather.slow = 0.3
        self._later(seconds, lambda: setattr(weather, "slow", min(before, weather.slow)))

    def _bumpy_network(self, seconds: float) -> None:
        weather, before = self._site.network.weather, self._site.network.weather.bumpy
        weather.bumpy = 0.3
        self._later(seconds, lambda: setattr(weather, "bumpy", min(before, weather.bumpy)))

    def _long_transaction(self, seconds: float) -> None:
        """Of our own role: it announces something before it commits."""
        database = self._site.database
        xid = database.begin()
        value = f"long {xid}".encode()
        self._later(
            seconds,
            lambda: database.end(xid, lambda tables, _: tables.announce(xid, TOPICS.dead_letters, "long", None, value)),
        )

    def _broker_away(self, seconds: float) -> None:
        self._site.broker.is_up = False
        self._later(seconds, self._site.broker.come_back)

    def _broker_lost(self, seconds: float) -> None:
        self._book.is_lossy = True
        self._site.broker.lose_everything()
        self._broker_away(seconds)

    def _topic_made_again(self, seconds: float) -> None:
        self._book.is_lossy = True
        all_specs = specs(self._site.scenario.partitions)
        spec = all_specs[self._site.network.pick(len(all_specs))]
        self._site.broker.delete(spec.name)
        if self._site.network.chance(0.5):
            self._site.broker.ensure([spec])

    def _record_lost(self, seconds: float) -> None:
        """Each that is written for a moment, acknowledged and then gone before anybody read it."""
        self._book.is_lossy = True
        self._site.broker.losing = 0.5
        self._later(min(seconds, 1.0), lambda: setattr(self._site.broker, "losing", 0.0))

    def _flaky_broker(self, seconds: float) -> None:
        self._site.broker.flaky = 0.3
        self._later(seconds, lambda: setattr(self._site.broker, "flaky", 0.0))

    def _repeated_delivery(self, seconds: float) -> None:
        self._site.broker.repeating = 0.3
        self._later(seconds, lambda: setattr(self._site.broker, "repeating", 0.0))

    def _storage_away(self, seconds: float) -> None:
        self._site.storage.is_up = False
        self._later(seconds, lambda: setattr(self._site.storage, "is_up", True))

    def _host_lost(self, seconds: float) -> None:
        bodies = [node.bodies for node in self._nodes if node.process.life is Life.RUNNING and node.bodies]
        if bodies:
            chosen = bodies[self._site.network.pick(len(bodies))]
            self._trace.note("host lost", chosen.lose_host())

    def _liveness_lost(self, seconds: float) -> None:
        """The connection that tells of an executor's life breaks; it makes another one."""
        sessions = [one for one in self._site.database.tables.sessions.values() if one.alive]
        if sessions:
            session = sessions[self._site.network.pick(len(sessions))]
            session.muted = True
            self._later(seconds, lambda: setattr(session, "muted", False))
