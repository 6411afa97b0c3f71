"""PostgreSQL and a broker started side by side in one folder, and both gone when the block is left.

`persist` keeps the database in a folder of the caller's; the broker never keeps anything. Nothing is
written outside that folder and one fresh temporary folder.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from ops.embedded.account import Account, choose_account
from ops.embedded.apache import ApacheKafka
from ops.embedded.broker import EmbeddedBroker
from ops.embedded.postgres import EmbeddedPostgres, Places
from schemas.errors import Refused, Unavailable

BrokerKind = Literal["embedded", "apache"]
OnProgress = Callable[[str, str], None]
# With root's servers under another account, that account must pass through our folders, but not list them.
PASSABLE, PRIVATE = 0o711, 0o700


class Broker(Protocol):
    """What the stack needs of either broker."""

    name: str
    port: int

    @property
    def pid(self) -> int: ...
    @property
    def bootstrap(self) -> str: ...
    async def start(self) -> None: ...
    async def start_empty(self) -> None: ...
    async def stop(self) -> None: ...
    async def kill_immediately(self) -> None: ...
    async def ended(self) -> str: ...


def _silent(part: str, state: str) -> None:
    """Nobody is watching."""


class EmbeddedStack:
    """`async with EmbeddedStack() as stack:` and `stack.postgres_dsn`, `stack.kafka_bootstrap`.

    `on_progress` is called with a part ("postgres", "broker") and "starting", "ready", "stopping" or "stopped".
    """

    postgres: EmbeddedPostgres
    broker: Broker

    def __init__(
        self,
        persist: Path | None = None,
        *,
        postgres_port: int = 0,
        broker_port: int = 0,
        kafka: BrokerKind = "embedded",
        on_progress: OnProgress = _silent,
    ) -> None:
        self._persist = persist.absolute() if persist else None
        self._ports = postgres_port, broker_port
        self._kafka = kafka
        self._on_progress = on_progress
        self._scratch: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder that is kept, or without `persist` the temporary one."""
        if self._persist is not None:
            return self._persist
        if self._scratch is None:
            raise Unavailable("E_EMBEDDED_STACK", "The embedded stack is not running.")
        return self._scratch

    @property
    def postgres_dsn(self) -> str:
        """Address of the superuser of the embedded cluster."""
        return self.postgres.dsn

    @property
    def kafka_bootstrap(self) -> str:
        return self.broker.bootstrap

    async def create_database(self, name: str, owner_password: str) -> str:
        """A database with an owner of the same name (both may exist); returns the owner's address."""
        return await self.postgres.create_database(name, owner_password)

    async def ended(self) -> str:
        """Returns only when one of the two servers ended: which, how, and its last words."""
        waiting = [asyncio.create_task(part.ended()) for part in (self.postgres, self.broker)]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in waiting:
                task.cancel()

    async def __aenter__(self) -> Self:
        account = choose_account((self._persist or Path(os.devnull)) / "postgres")
        self._scratch = _temporary_folder(account)
        try:
            self._lay_out(account, self._scratch)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start(self.postgres))
                group.create_task(self._start(self.broker))
        except BaseExceptionGroup as several:
            await self._end()
            raise several.exceptions[0] from None
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def _lay_out(self, account: Account, scratch: Path) -> None:
        kept = self._persist or scratch
        if self._persist is not None:
            _prepare_kept_folder(self._persist, account)
        logs = kept / "logs"
        logs.mkdir(mode=PRIVATE, exist_ok=True)
        (scratch / "broker").mkdir(mode=PRIVATE)
        postgres_port, broker_port = self._ports
        places = Places(
            data=kept / "postgres",
            password=kept / "postgres.password",
            log=logs / "postgres.log",
            scratch=scratch,
            keep=self._persist is not None,
        )
        self.postgres = EmbeddedPostgres(places, account, postgres_port)
        kind = ApacheKafka if self._kafka == "apache" else EmbeddedBroker
        self.broker = kind(scratch / "broker", logs, broker_port)

    async def _start(self, part: EmbeddedPostgres | Broker) -> None:
        self._on_progress(part.name, "starting")
        await part.start()
        self._on_progress(part.name, "ready")

    async def _stop(self, part: EmbeddedPostgres | Broker) -> None:
        self._on_progress(part.name, "stopping")
        await part.stop()
        self._on_progress(part.name, "stopped")

    async def _end(self) -> None:
        parts = [part for part in (vars(self).get("postgres"), vars(self).get("broker")) if part is not None]
        try:
            await asyncio.gather(*(self._stop(part) for part in parts))
        finally:
            if self._scratch is not None:
                await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)


def _temporary_folder(account: Account) -> Path:
    """A fresh folder that the servers' account can pass: the usual place for such, else the system's own."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108  only mkdtemp writes there
        if not Path(place).is_dir() or not account.can_enter(Path(place)):
            continue
        scratch = Path(tempfile.mkdtemp(prefix="a44-", dir=place))
        scratch.chmod(PRIVATE if account.uid is None else PASSABLE)
        return scratch
    raise Unavailable(
        "E_EMBEDDED_STACK",
        "There is no temporary folder that an unprivileged account can enter, and PostgreSQL does not run as root. "
        "Point TMPDIR to one, or run as an ordinary user.",
    )


def _make(folder: Path, mode: int) -> None:
    """The folder with every parent that is missing; all of them get the mode, whatever the umask says."""
    try:
        for part in [*(place for place in reversed(folder.parents) if not place.exists()), folder]:
            part.mkdir()
            part.chmod(mode)
    except OSError as exc:
        raise Refused("E_CONFIG", f"{folder} cannot be made: {exc.strerror}.") from exc


def _prepare_kept_folder(folder: Path, account: Account) -> None:
    """Make it if it is missing; a folder that exists is used as it is, and its modes are left alone."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise Refused("E_CONFIG", f"{existing} is not a folder that can be written to.")
    if existing != folder and account.can_enter(existing):
        _make(folder, PRIVATE if account.uid is None else PASSABLE)
        existing = folder
    if not account.can_enter(existing):
        raise Refused(
            "E_CONFIG",
            f"{existing} cannot be entered by the unprivileged account that PostgreSQL runs under when started as "
            "root, and its modes are yours to decide. Choose a folder that others can pass through, or run as an "
            "ordinary user.",
        )
