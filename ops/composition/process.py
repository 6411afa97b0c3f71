"""One process of the service: roles side by side until SIGTERM or Ctrl-C, then each ends in its own good order.

What has not ended in good order after some seconds, or when a second signal comes, is ended as it is: nothing is
held here that cannot be read again. A role that ends by itself, or fails, takes the process down: whoever supervises
it starts it again.
"""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence

import structlog

from ops.composition.logging import configure_logging
from ops.composition.roles import runner_of
from ops.composition.roles.parts import RoleRunner
from ops.settings import Settings
from ops.telemetry import exported
from processors.adapters.postgres.migrations import check_schema
from processors.ports.measures import Measures
from schemas.errors import AutomationError, Broken

_log = structlog.get_logger("process")
Ready = Callable[[str, Mapping[str, object]], None]
SECOND_SIGNAL_EXIT = 130
FORCED_EXIT = 1
LONGEST_STOP_SECONDS = 9.0
# A batch is thousands of objects that its end frees without the collector; with the usual 700 it would walk them, and
# the runs that are held, many times a second.
GC_THRESHOLDS = (20_000, 20, 20)


def _log_ready(role: str, details: Mapping[str, object]) -> None:
    _log.info("ready", role=role, **details)


async def up(settings: Settings, roles: Sequence[str], on_ready: Ready = _log_ready) -> None:
    """Run roles until told to stop. Raises AutomationError for what keeps a role from starting."""
    configure_logging(settings.log_level)
    runners = {role: runner_of(role) for role in roles}
    gc.freeze()  # what was imported stays
    gc.set_threshold(*GC_THRESHOLDS)
    await check_schema(settings.postgres_dsn)
    measures = Measures()
    async with exported(measures, settings.metrics_port) as address:

        def ready(role: str, details: Mapping[str, object]) -> None:
            measures.set("role_up", 1, role)
            on_ready(role, {**details, **address})

        await _run(settings, runners, ready, measures)


async def _run(settings: Settings, runners: Mapping[str, RoleRunner], on_ready: Ready, measures: Measures) -> None:
    stop = asyncio.Event()
    tasks: dict[asyncio.Task[None], str] = {}
    _obey_signals(stop, tasks)
    for role, run in runners.items():
        measures.set("role_up", 0, role)
        tasks[asyncio.create_task(run(settings, stop, on_ready, measures), name=role)] = role
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    early = not stop.is_set()
    if early:
        _stop(stop, tasks)
    await asyncio.wait(tasks)
    for task, role in tasks.items():
        failure = task.exception()
        if isinstance(failure, AutomationError):
            raise failure
        if failure is not None:
            _log.error("role_failed", role=role, exc_info=failure)
            raise Broken("E_INTERNAL", f"the role {role} failed: {failure!r}") from failure
    if early:
        raise Broken("E_INTERNAL", "a role ended by itself")
    _log.info("stopped", roles=list(runners))


def _obey_signals(stop: asyncio.Event, tasks: Mapping[asyncio.Task[None], str]) -> None:
    """The first signal stops in good order, the second at once, whatever the loop is doing then."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def obey() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, lambda *_: os._exit(SECOND_SIGNAL_EXIT))
        _stop(stop, tasks)

    for number in numbers:
        loop.add_signal_handler(number, obey)


def _stop(stop: asyncio.Event, tasks: Mapping[asyncio.Task[None], str]) -> None:
    """Tell the roles; a thread sees to the limit, since a loop that hangs sees to nothing."""

    def give_up() -> None:
        left = [role for task, role in tasks.items() if not task.done()]
        _log.error("stopped_by_force", roles=left, seconds=LONGEST_STOP_SECONDS)
        os._exit(FORCED_EXIT)

    _log.info("stopping", roles=list(tasks.values()))
    limit = threading.Timer(LONGEST_STOP_SECONDS, give_up)
    limit.daemon = True
    limit.start()
    stop.set()
