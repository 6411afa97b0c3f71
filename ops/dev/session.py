"""One development session: start everything, say where it is, publish on save, stop cleanly on Ctrl-C."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ops.client import Client
from ops.dev.publisher import Publisher
from ops.local import LocalOptions, LocalStack
from ops.settings import DevOptions
from schemas.errors import Refused, Unavailable

PASSED_SETTINGS = ("A44_STEP_ENVIRONMENT", "A44_LOG_LEVEL", "A44_EXECUTOR_SLOTS", "A44_LEASE_SECONDS", "A44_PYTHON")
SECRETS_FILE = "secrets.toml"


def dev(options: DevOptions) -> None:
    """Runs until Ctrl-C or SIGTERM. Raises AutomationError when a part cannot start or ends by itself."""
    asyncio.run(_session(options, _say))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _check_paths(options: DevOptions) -> None:
    for path in options.paths:
        if not path.exists():
            raise Refused("E_CONFIG", f"{path} does not exist; name workflow files or folders, or none for this folder")


async def _session(options: DevOptions, say: Callable[[str], None]) -> None:
    _check_paths(options)
    stop = asyncio.Event()

    def hear() -> None:
        """Said at once: a start that is under way is let through first, which takes seconds."""
        if not stop.is_set():
            say("stopping ...")
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, hear)
    project = os.environ.get("A44_PROJECT", "dev")
    local = LocalOptions(
        project=project,
        persist=options.persist,
        port=options.port,
        postgres_port=options.postgres_port,
        kafka_port=options.kafka_port,
        environment=_environment(),
    )
    say("starting postgres, a broker and the five roles ...")
    async with LocalStack(local) as stack:
        if not stop.is_set():
            publisher = Publisher(Client(stack.url, stack.token), options.paths, say)
            _welcome(stack, options, say)
            await publisher.publish()
            await _until_stopped(stack, publisher, stop)
    say("stopped")


def _environment() -> dict[str, str]:
    """What the roles may see of the user's environment: a few settings, and the names that steps are to see."""
    told = {name: os.environ[name] for name in PASSED_SETTINGS if name in os.environ}
    for name in told.get("A44_STEP_ENVIRONMENT", "").split(","):
        if name in os.environ:
            told[name] = os.environ[name]
    secrets = Path(os.environ.get("A44_SECRETS_FILE", SECRETS_FILE))
    if secrets.is_file():
        told["A44_SECRETS_FILE"] = str(secrets.resolve())
    return told


async def _until_stopped(stack: LocalStack, publisher: Publisher, stop: asyncio.Event) -> None:
    watching = asyncio.create_task(publisher.watch(stop))
    ended = asyncio.create_task(stack.ended())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([watching, ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            words = ended.result() if ended.done() else "the watcher ended"
            raise Unavailable("E_UNAVAILABLE", f"a part of the stack ended by itself: {words}")
        await asyncio.wait([watching])
    finally:
        for task in (watching, ended, stopping):
            task.cancel()
        await asyncio.wait([watching, ended, stopping])


def _welcome(stack: LocalStack, options: DevOptions, say: Callable[[str], None]) -> None:
    paths = ", ".join(str(path) for path in options.paths)
    project = stack.options.project
    say(
        f"""
  gateway     {stack.url}
  kafka       {stack.kafka_bootstrap}   topic a44.events.v1
  log         {stack.log_dsn}
  database    {stack.project_dsn}   for sql/execute
  logs        {stack.folder / "logs"}
  watching    {paths}

  in another terminal:
    export A44_URL={stack.url} A44_PROJECT={project} A44_TOKEN={stack.token}
    a44 automation runs

  Ctrl-C stops everything.
"""
    )
