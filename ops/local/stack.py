"""Embedded servers, a migrated log, a project with its own database and token, and every role as a process.

`async with LocalStack(options) as stack:` and the public doors are open at `stack.url`. Everything is under one
folder; leaving the block stops all of it in good order. Inside it any part may be killed, paused and started again:
`stack.processes["executor"]`, `stack.servers.postgres`, `stack.servers.broker`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ops.embedded import EmbeddedStack
from ops.embedded.ports import free_port
from ops.embedded.stack import BrokerKind
from ops.local.identity import Identity, load_or_make, save
from ops.local.role_process import RoleProcess
from ops.secrets import variable_of
from ops.settings import ROLES
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.migrations import migrate
from processors.adapters.postgres.relay_store import rewind_relay
from processors.adapters.postgres.tokens import PostgresTokens
from schemas.errors import Refused

OnProgress = Callable[[str, str], None]
LOG_DATABASE = "a44_log"
SCOPES = ("automation:read", "automation:write", "automation:dead-letters", "automation:operator")
DATABASE_SECRET = "sec_database"  # noqa: S105  the name of a secret, not one


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """`environment` reaches every role beside the settings; ports of 0 mean any free one.

    A role that is named twice runs as two processes: `executor` and `executor-2`. `environment_of` is for one process,
    by that name.
    """

    project: str = "dev"
    persist: Path | None = None
    port: int = 0
    postgres_port: int = 0
    kafka_port: int = 0
    kafka: BrokerKind = "embedded"
    roles: Sequence[str] = ROLES
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _silent(part: str, state: str) -> None:
    """Nobody is watching."""


class LocalStack:
    """`processes` are the roles by the name of the process; `url` is the first gateway, of any other see its `told`.
    `project_dsn` is the database that the project's SQL steps write to.
    """

    url: str
    token: str
    log_dsn: str
    project_dsn: str

    def __init__(self, options: LocalOptions, on_progress: OnProgress = _silent) -> None:
        self.options = options
        self._on_progress = on_progress
        self._servers = EmbeddedStack(
            options.persist,
            postgres_port=options.postgres_port,
            broker_port=options.kafka_port,
            kafka=options.kafka,
            on_progress=on_progress,
        )
        self.processes: dict[str, RoleProcess] = {}
        self._settings: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        return self._servers.folder

    @property
    def servers(self) -> EmbeddedStack:
        return self._servers

    @property
    def kafka_bootstrap(self) -> str:
        return self._servers.kafka_bootstrap

    async def __aenter__(self) -> Self:
        await self._servers.__aenter__()
        try:
            await self._open_doors()
        except BaseException:
            await self._stop_roles()
            await self._servers.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_roles()
        await self._servers.__aexit__(kind, problem, trace)

    async def ended(self) -> str:
        """Returns only when a part of the stack ended by itself: which, and its last words."""
        waiting = [asyncio.create_task(self._servers.ended())]
        waiting += [asyncio.create_task(process.ended()) for process in self.processes.values()]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in waiting:
                task.cancel()

    async def _open_doors(self) -> None:
        identity = load_or_make(self.folder)
        await self._prepare_databases(identity)
        port = identity.port = self._choose_port(identity.port)
        save(identity, self.folder)
        self.token = identity.token
        self.url = f"http://127.0.0.1:{port}"
        self._settings = self._environment(identity, port)
        for role in self.options.roles:
            self.add(role)
        started = await asyncio.gather(*map(self._start, self.processes.values()), return_exceptions=True)
        for failure in started:
            if failure is not None:
                raise failure

    def add(self, role: str) -> RoleProcess:
        """One more process of a role, to be started; it is stopped with the others."""
        number = 1 + sum(process.role == role for process in self.processes.values())
        name = role if number == 1 else f"{role}-{number}"
        own = {"A44_OWNER": f"local-{name}", **({"A44_GATEWAY_PORT": str(free_port())} if number > 1 else {})}
        environment = {**self._settings, **own, **self.options.environment_of.get(name, {})}
        process = self.processes[name] = RoleProcess(role, environment, self.folder / "logs" / f"{name}.log", name)
        return process

    def _choose_port(self, last: int) -> int:
        """The wished port; else the one of the last start, where senders still look for us, if it is free."""
        if last and not self.options.port:
            with contextlib.suppress(Refused):
                return free_port(last)
        return free_port(self.options.port)

    async def _prepare_databases(self, identity: Identity) -> None:
        self._on_progress("database", "starting")
        self.log_dsn = await self._servers.create_database(LOG_DATABASE, identity.log_password)
        project = self.options.project.replace("-", "_")
        self.project_dsn = await self._servers.create_database(f"project_{project}", identity.project_password)
        applied = await migrate(self.log_dsn)
        if not applied:
            # The broker begins empty each time: what was announced before goes out again, and ingest drops what
            # it has seen.
            await rewind_relay(self.log_dsn)
        if not identity.token:
            async with open_pool(self.log_dsn, "local", size=1) as pool:
                identity.token = await PostgresTokens(pool).create_token(self.options.project, "local", SCOPES)
        self._on_progress("database", "ready")

    def _environment(self, identity: Identity, port: int) -> dict[str, str]:
        secrets = {name: value for name, value in os.environ.items() if name.startswith("A44_SECRET_")}
        return {
            "A44_POSTGRES_DSN": self.log_dsn,
            "A44_KAFKA_BOOTSTRAP": self.kafka_bootstrap,
            "A44_MASTER_KEY": identity.master_key,
            "A44_GATEWAY_PORT": str(port),
            "A44_ALLOW_PRIVATE_EGRESS": "true",
            variable_of(self.options.project, DATABASE_SECRET): self.project_dsn,
            **secrets,
            **self.options.environment,
        }

    async def _start(self, process: RoleProcess) -> None:
        self._on_progress(process.name, "starting")
        await process.start()
        self._on_progress(process.name, "ready")

    async def _stop_roles(self) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes.values()))
