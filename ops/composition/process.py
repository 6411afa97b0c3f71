"""One process of the service: roles side by side until SIGTERM or Ctrl-C, then each ends in its own good order.

A role that ends by itself, or fails, takes the process down: whoever supervises it starts it again.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence

import structlog

from ops.composition.logging import configure_logging
from ops.composition.roles import ROLE_RUNNERS
from ops.settings import Settings
from ops.telemetry import exported
from processors.adapters.postgres.migrations import check_schema
from processors.ports.measures import Measures
from schemas.errors import AutomationError, Broken

_log = structlog.get_logger("process")
Ready = Callable[[str, Mapping[str, object]], None]
SECOND_SIGNAL_EXIT = 130


def _log_ready(role: str, details: Mapping[str, object]) -> None:
    _log.info("ready", role=role, **details)


async def up(settings: Settings, roles: Sequence[str], on_ready: Ready = _log_ready) -> None:
    """Run roles until told to stop. Raises AutomationError for what keeps a role from starting."""
    configure_logging(settings.log_level)
    await check_schema(settings.postgres_dsn)
    measures = Measures()
    async with exported(measures, settings.metrics_port) as address:

        def ready(role: str, details: Mapping[str, object]) -> None:
            measures.set("role_up", 1, role)
            on_ready(role, {**details, **address})

        await _run(settings, tuple(dict.fromkeys(roles)), ready, measures)


async def _run(settings: Settings, roles: Sequence[str], on_ready: Ready, measures: Measures) -> None:
    stop = asyncio.Event()
    _obey_signals(stop)
    tasks: dict[asyncio.Task[None], str] = {}
    for role in roles:
        measures.set("role_up", 0, role)
        tasks[asyncio.create_task(ROLE_RUNNERS[role](settings, stop, on_ready, measures), name=role)] = role
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    early = not stop.is_set()
    stop.set()
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
    _log.info("stopped", roles=list(roles))


def _obey_signals(stop: asyncio.Event) -> None:
    """The first signal stops in good order, the second at once."""
    loop = asyncio.get_running_loop()

    def obey() -> None:
        if stop.is_set():
            os._exit(SECOND_SIGNAL_EXIT)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, obey)
