"""The hosts there are: one for each key, hosts for suspects, and a warm spare; begun, replaced and stopped.

A host that dies makes suspects of all that were in it, and a lost executor of all that it had. They are spread over
a few hosts apart from everybody else; whoever is in another one that dies is from then on alone in its host. So the
one that kills is found, and its neighbours do not wait for each other.

A key whose host dies before it has imported a program waits longer for each next one. Of one that did not even come
up no run is suspected.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import structlog

from processors.executor.hosts.causes import Cause
from processors.executor.hosts.hearing import Hearing
from processors.executor.hosts.held import HeldRun, Launch
from processors.executor.hosts.host import Host, Room, Stage
from processors.executor.hosts.leftovers import Leftovers
from processors.executor.hosts.program import HostKey, Program
from processors.executor.hosts.settings import HostSettings
from processors.executor.hosts.starter import Starter
from processors.executor.hosts.watch import Watch
from processors.ports.bodies import BodyListener
from schemas.records import ErrorInfo

_SPARE = HostKey("", "", "")
_log = structlog.get_logger(__name__)


class Fleet:
    """`lost` and `refused` hear of runs that have no host any more, or can have none; `launch` of attempts
    that were held back and may start now.
    """

    def __init__(
        self,
        listener: BodyListener,
        starter: Starter,
        settings: HostSettings,
        watch: Watch,
        lost: Callable[[Sequence[HeldRun], str, Collection[str]], None],
        refused: Callable[[HeldRun, ErrorInfo], None],
        launch: Callable[[Launch], None],
    ) -> None:
        self.leftovers: Leftovers[Host] = Leftovers(launch)
        self.give_up = lost
        self.refuse = refused
        self._starter = starter
        self._settings = settings
        self._hearing = Hearing(listener, settings.grace)
        self._watch = watch
        self._keys: dict[HostKey, Host] = {}
        self._hosts: dict[Host, HostKey] = {}
        self._alone: deque[tuple[HeldRun, Program]] = deque()
        self._spare: Host | None = None
        self._deaths: dict[HostKey, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def warm(self) -> None:
        """Have a spare host started, so that the next bundle does not wait for a process."""
        if self._spare is None and self._settings.spare and not self._closed:
            self._spare = self._new_host(_SPARE)

    def place(self, run: HeldRun, program: Program, losses: int) -> None:
        """Into the host of the program's key, or a new one. Of hosts for suspects there are only so many at once."""
        if losses > 1:
            self._alone.append((run, program))
            self._place_alone()
        elif losses == 1:
            self._apart_host(program).take(run, program)
        else:
            host = self._keys.get(program.key)
            if host is None:
                host = self._keys[program.key] = self._host_for(program, Room.SHARED)
            host.take(run, program)

    def _apart_host(self, program: Program) -> Host:
        """A new one while there are few, then the one with the fewest runs."""
        apart = [host for host, key in self._hosts.items() if key == program.key and host.takes_suspects]
        if len(apart) < self._settings.apart_hosts:
            return self._host_for(program, Room.APART)
        return min(apart, key=lambda host: len(host.runs))

    def _place_alone(self) -> None:
        while self._alone and sum(map(_is_taken_alone, self._hosts)) < self._settings.alone_hosts:
            run, program = self._alone.popleft()
            if not run.over:
                self._host_for(program, Room.ALONE).take(run, program)

    async def aclose(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(host.stop() for host in list(self._hosts)))

    # -- what hosts tell ----------------------------------------------------------------------------

    def host_loaded(self, host: Host) -> None:
        self._deaths.pop(self._hosts[host], None)

    def host_withdrawn(self, host: Host) -> None:
        self._unroute(host)

    def host_empty(self, host: Host) -> None:
        if host.room is not Room.SHARED or host.stage is Stage.WITHDRAWN:
            self._stop(host)

    def host_gone(self, host: Host) -> None:
        key = self._hosts.pop(host)
        self._unroute(host)
        if host.stage is not Stage.STOPPING:
            self._watch.died(host)
            if not host.is_sound:
                self._deaths[key] = self._deaths.get(key, 0) + 1
        if host is self._spare:
            self._spare = None
            self.warm()
        if host.room is Room.ALONE and not self._closed:
            self._place_alone()

    # -- making and stopping ------------------------------------------------------------------------

    def _host_for(self, program: Program, room: Room) -> Host:
        spare = self._spare
        if spare is not None and spare.stage in {Stage.STARTING, Stage.SERVING} and not self._deaths.get(program.key):
            self._spare = None
            self._deaths.pop(_SPARE, None)
            self._hosts[spare] = program.key
            spare.room = room
            host = spare
        else:
            host = self._new_host(program.key, room)
        host.assign(program)
        self.warm()
        return host

    def _new_host(self, key: HostKey, room: Room = Room.SHARED) -> Host:
        host = Host(self, self._settings, self._hearing.hear, room)
        self._hosts[host] = key
        self._run(self._begin(host, self._delay(key)))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._settings.check_every, self._check)
        return host

    async def _begin(self, host: Host, delay: float) -> None:
        try:
            await self._starter.begin(host, delay)
        except Exception as exc:  # noqa: BLE001  nobody else ends a host that has not begun
            _log.exception("step_host_not_started", interpreter=self._settings.interpreter)
            host.kill(f"the step host cannot be started: {exc}", Cause.START)

    def _delay(self, key: HostKey) -> float:
        """Seconds before the next host of a key, by how many died in a row without importing anything."""
        deaths = self._deaths.get(key, 0)
        if not deaths:
            return 0.0
        return min(self._settings.backoff_base * 2.0 ** min(deaths - 1, 30), self._settings.backoff_cap)

    def _stop(self, host: Host) -> None:
        self._unroute(host)
        if host.stage not in {Stage.STOPPING, Stage.GONE}:
            self._run(host.stop())

    def _unroute(self, host: Host) -> None:
        for key in [key for key, routed in self._keys.items() if routed is host]:
            del self._keys[key]

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._settings.check_every, self._check)
        now = time.monotonic()
        self._watch.check(list(self._hosts))
        for host, run_id, item in self.leftovers.overdue(now):
            self._watch.leftover(host, run_id, item, now)
        self._place_alone()
        for host in list(self._hosts):
            idle = host.is_at_rest and now - host.empty_since > self._settings.idle
            if idle and host is not self._spare and host.stage is Stage.SERVING:
                self._stop(host)


def _is_taken_alone(host: Host) -> bool:
    """A host for one run. Where that has left, and code of it runs on, the place is free for the next one."""
    return host.room is Room.ALONE and (bool(host.runs) or host.stage is Stage.STOPPING)
