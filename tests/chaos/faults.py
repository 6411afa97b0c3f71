"""Does one fault at a time to the stack that runs, and waits until what it hit is up again and work goes on.

What a recovery is measured by is only noted here; the figures are made from the log and the ledger at the end.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from ops.local import LocalStack
from ops.local.role_process import RoleProcess
from processors.adapters.postgres.relay_store import LEASE_SECONDS
from tests.chaos.announcements import Announcements
from tests.chaos.ledger import Ledger
from tests.chaos.looker import Looker
from tests.chaos.plan import Kind, Planned
from tests.chaos.records import Records
from tests.chaos.supervisor import Supervisor
from tests.support.waiting import until

FLIGHT, FLIGHT_SECONDS = 2, 20.0
RECOVERY_SECONDS = 90.0
AWAY_SECONDS = 6.0
GROUP_SECONDS = 6.0  # until a consumer group takes a silent member for gone
DEAR_SECONDS = 0.1  # between questions that cost the machine something
LEASE_OWNER = "select coalesce(max(owner), '') from automation.relay_shards where lease_until > clock_timestamp()"
MOVED = """
select coalesce(max(ended_at) > to_timestamp(%s), false) or not exists (select from automation.live_runs)
  from automation.runs_ended
"""
THIRD_INGEST = "ingest-3"
KNOWN = "select event_id from automation.runs"


@dataclass(slots=True)
class Fault:
    """`at` is when it struck and `back` when its target was up again, by the wall clock. `keys` are the steps that were
    in flight in what was hit, `door` the address of a gateway. An outage that we made ourselves is not the service's
    to answer for: then `counts_from` is when we let the target start again.
    """

    kind: Kind
    target: str
    at: float
    back: float = 0.0
    started: float = 0.0
    keys: set[str] = field(default_factory=set)
    door: str = ""
    remark: str = ""

    @property
    def counts_from(self) -> float:
        return self.started or self.at


class Faults:
    """`done` are those that happened. `problems` are recoveries that did not come in time."""

    def __init__(
        self,
        stack: LocalStack,
        ledger: Ledger,
        looker: Looker,
        records: Records,
        announcements: Announcements,
        supervisor: Supervisor,
        lease: float,
    ) -> None:
        self._stack = stack
        self._ledger = ledger
        self._looker = looker
        self._records = records
        self._announcements = announcements
        self._supervisor = supervisor
        self._lease = lease
        self.done: list[Fault] = []
        self.problems: list[str] = []
        self._doing: dict[Kind, Callable[[float], Awaitable[Fault]]] = {
            Kind.EXECUTOR_KILLED: self._kill_executor,
            Kind.EXECUTOR_PAUSED: self._pause_executor,
            Kind.ALL_EXECUTORS_KILLED: self._kill_all_executors,
            Kind.HOST_KILLED: self._kill_host,
            Kind.RELAY_KILLED: self._kill_relay,
            Kind.RELAY_PAUSED: self._pause_relay,
            Kind.GATEWAY_KILLED: lambda chance: self._kill_any("gateway", Kind.GATEWAY_KILLED, chance),
            Kind.SCHEDULER_KILLED: lambda chance: self._kill_any("scheduler", Kind.SCHEDULER_KILLED, chance),
            Kind.INGEST_KILLED: lambda chance: self._kill_any("ingest", Kind.INGEST_KILLED, chance),
            Kind.INGEST_PAUSED: self._pause_ingest,
            Kind.BROKER_KILLED: self._kill_broker,
            Kind.BROKER_LOST: self._lose_broker,
            Kind.POSTGRES_STOPPED: self._stop_postgres,
            Kind.REBALANCE: self._rebalance,
        }

    async def do(self, planned: Planned) -> Fault:
        """The fault, its target up again, and something ended after that."""
        await until(self._all_are_up, "every role is up", RECOVERY_SECONDS)
        names = set(self._stack.processes) | {THIRD_INGEST}
        self._supervisor.handled |= names
        try:
            fault = await self._doing[planned.kind](planned.chance)
        finally:
            self._supervisor.handled -= names - {THIRD_INGEST}
        fault.back = fault.back or time.time()
        self.done.append(fault)
        try:
            await until(
                lambda: self._goes_on(fault), f"work goes on after: {fault.kind} ({fault.target})", RECOVERY_SECONDS
            )
        except AssertionError as exc:
            self.problems.append(str(exc))
        return fault

    def _all_are_up(self) -> bool:
        """Those that ended by themselves are started again meanwhile."""
        return not self._supervisor.handled - {THIRD_INGEST} and all(
            one.is_running for one in self._stack.processes.values() if one.name != THIRD_INGEST
        )

    async def _goes_on(self, fault: Fault) -> bool:
        """A run ended after the target was back, and what was in flight has begun again or is done."""
        await asyncio.sleep(DEAR_SECONDS)
        self._ledger.read()
        again = self._ledger.began_again(fault.keys, fault.at)
        done = {key for key in fault.keys if any(one.applied for one in self._ledger.of_key[key])}
        return fault.keys <= again.keys() | done and bool(await self._looker.one(MOVED, (fault.back,)))

    # executors

    async def _kill_executor(self, chance: float) -> Fault:
        executor = self._pick("executor", chance)
        pids = await self._busy(executor)
        at = time.time()
        await executor.kill()
        fault = Fault(Kind.EXECUTOR_KILLED, executor.name, at, keys=self._in_flight(pids))
        await executor.start()
        return fault

    async def _pause_executor(self, chance: float) -> Fault:
        executor = self._pick("executor", chance)
        pids = await self._busy(executor)
        at = time.time()
        executor.pause()
        fault = Fault(Kind.EXECUTOR_PAUSED, executor.name, at, keys=self._in_flight(pids))
        await self._hold(executor)
        return fault

    async def _kill_all_executors(self, _: float) -> Fault:
        executors = self._all("executor")
        names = ", ".join(executor.name for executor in executors)
        pids = [pid for executor in executors for pid in await self._busy(executor)]
        at = time.time()
        await asyncio.gather(*(executor.kill() for executor in executors))
        fault = Fault(Kind.ALL_EXECUTORS_KILLED, names, at, keys=self._in_flight(pids))
        await asyncio.sleep(AWAY_SECONDS)
        fault.started = time.time()
        await asyncio.gather(*(executor.start() for executor in executors))
        return fault

    async def _kill_host(self, chance: float) -> Fault:
        """One that has steps in flight."""
        executor = self._pick("executor", chance)
        fault = Fault(Kind.HOST_KILLED, executor.name, time.time())

        async def struck() -> bool:
            await asyncio.sleep(DEAR_SECONDS)
            fault.at = fault.back = time.time()
            fault.keys = next((keys for pid in executor.children() if (keys := self._kill_if_busy(pid))), set())
            return bool(fault.keys)

        with suppress(AssertionError):
            await until(struck, "a host with steps in flight", FLIGHT_SECONDS)
        return fault

    def _kill_if_busy(self, pid: int) -> set[str]:
        """Held still while we look: what is in flight then is in flight when it dies."""
        try:
            os.kill(pid, signal.SIGSTOP)
            keys = self._in_flight([pid])
            os.kill(pid, signal.SIGKILL if keys else signal.SIGCONT)
        except ProcessLookupError:
            return set()
        return keys

    async def _busy(self, executor: RoleProcess) -> list[int]:
        """Its hosts, as soon as some steps are in flight there; whatever there is when nothing comes."""

        async def has_work() -> bool:
            await asyncio.sleep(DEAR_SECONDS)
            self._ledger.read()
            return len(self._ledger.in_flight(executor.children())) >= FLIGHT

        with suppress(AssertionError):
            await until(has_work, "steps are in flight", FLIGHT_SECONDS)
        return list(executor.children())

    def _in_flight(self, pids: Iterable[int]) -> set[str]:
        self._ledger.read()
        return self._ledger.in_flight(set(pids))

    # other roles

    async def _kill_any(self, role: str, kind: Kind, chance: float) -> Fault:
        process = self._pick(role, chance)
        fault = Fault(kind, process.name, time.time(), door=str(process.told.get("url", "")))
        await process.kill()
        await process.start()
        return fault

    async def _kill_relay(self, _: float) -> Fault:
        process = await self._publishing_relay()
        fault = Fault(Kind.RELAY_KILLED, process.name, time.time())
        await process.kill()
        await process.start()
        return fault

    async def _pause_relay(self, _: float) -> Fault:
        process = await self._publishing_relay()
        fault = Fault(Kind.RELAY_PAUSED, process.name, time.time())
        await self._hold(process, LEASE_SECONDS)
        return fault

    async def _publishing_relay(self) -> RoleProcess:
        """Not the one that stands by."""
        owner = str(await self._looker.one(LEASE_OWNER)).removeprefix("local-")
        return self._stack.processes.get(owner) or self._pick("relay", 0.0)

    async def _pause_ingest(self, chance: float) -> Fault:
        process = self._pick("ingest", chance)
        fault = Fault(Kind.INGEST_PAUSED, process.name, time.time())
        await self._hold(process)
        return fault

    async def _hold(self, process: RoleProcess, lease: float = GROUP_SECONDS) -> None:
        """Paused for longer than any lease, its own or its group's."""
        process.pause()
        try:
            await asyncio.sleep(max(self._lease, lease) + 1.5)
        finally:
            process.go_on()

    async def _rebalance(self, _: float) -> Fault:
        fault = Fault(Kind.REBALANCE, "ingest", time.time())
        third = self._stack.processes.get(THIRD_INGEST) or self._stack.add("ingest")
        await third.start()
        await third.stop()
        return fault

    # servers

    async def _kill_broker(self, _: float) -> Fault:
        broker = self._stack.servers.broker
        fault = Fault(Kind.BROKER_KILLED, "broker", time.time())
        await broker.kill_immediately()
        await broker.start()
        return fault

    async def _lose_broker(self, _: float) -> Fault:
        broker = self._stack.servers.broker
        fault = Fault(Kind.BROKER_LOST, "broker", time.time())
        await broker.kill_immediately()
        await broker.start_empty()
        fault.back = time.time()
        self._announcements.read_anew()
        again = self._records.send_again({row[0] for row in await self._looker.rows(KNOWN)})
        fault.remark = f"{again} records that were not accepted yet were produced again"
        return fault

    async def _stop_postgres(self, _: float) -> Fault:
        postgres = self._stack.servers.postgres
        fault = Fault(Kind.POSTGRES_STOPPED, "postgres", time.time())
        await postgres.stop_immediately()
        await postgres.start()
        return fault

    def _all(self, role: str) -> list[RoleProcess]:
        return [one for one in self._stack.processes.values() if one.role == role and one.is_running]

    def _pick(self, role: str, chance: float) -> RoleProcess:
        found = self._all(role)
        return found[int(chance * len(found))]
