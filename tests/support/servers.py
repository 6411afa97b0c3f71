"""Where the tests get PostgreSQL and Kafka from: given addresses, else containers, else the embedded stack.

`A44_TEST_POSTGRES_DSN` and `A44_TEST_KAFKA` name running servers (the DSN's role may create databases and
roles). `A44_TEST_BROKER` is `embedded`, `apache` (Apache Kafka on the machine's Java, no Docker) or
`containers`; unset, containers are used where a Docker engine answers. The embedded stack's files lie in memory where
there is room: to make and drop a database for each test is hundreds of files, and on a disk most of a suite's time.
Whole stacks that tests start of their own are on the disk, as an installation is.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.embedded import EmbeddedStack
from ops.embedded.stack import BrokerKind

MEMORY = Path("/dev/shm")  # noqa: S108 - only a folder of our own is used
MEMORY_BYTES = 4 << 30
POSTGRES_IMAGE = "postgres:18"
CHOICES = ("", "embedded", "apache", "containers")


@dataclass(frozen=True, slots=True)
class Servers:
    """Addresses, and in words where the servers come from. `stack` is there when we started them ourselves."""

    postgres_dsn: str
    kafka_bootstrap: str
    origin: str
    stack: EmbeddedStack | None = None


def wished_broker() -> str:
    wish = os.environ.get("A44_TEST_BROKER", "")
    if wish not in CHOICES:
        raise ValueError(f"A44_TEST_BROKER is {wish!r}; expected one of {', '.join(CHOICES[1:])}, or unset")
    return wish


@asynccontextmanager
async def running_servers() -> AsyncIterator[Servers]:
    """The servers of this test session."""
    dsn, kafka = os.environ.get("A44_TEST_POSTGRES_DSN"), os.environ.get("A44_TEST_KAFKA")
    wish = wished_broker()
    if dsn and kafka:
        yield Servers(dsn, kafka, "addresses from the environment")
        return
    async with AsyncExitStack() as resources:
        if wish == "containers" or (not wish and docker_answers()):
            own = await asyncio.to_thread(_start_containers, resources, dsn is None, kafka is None)
            stack = None
        else:
            kind: BrokerKind = "apache" if wish == "apache" else "embedded"
            stack = await resources.enter_async_context(EmbeddedStack(_in_memory(resources), kafka=kind))
            own = stack.postgres_dsn, stack.kafka_bootstrap, f"embedded stack with {kind} broker"
        yield Servers(dsn or own[0], kafka or own[1], own[2], stack)


def _in_memory(resources: AsyncExitStack) -> Path | None:
    """A folder in memory for the time of the session, where the machine has one with room."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_BYTES:
        return None
    for left in MEMORY.glob("a44-tests-*-*"):  # by a session that was killed
        if not Path(f"/proc/{left.name.split('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"a44-tests-{os.getpid()}-", dir=MEMORY))
    folder.chmod(0o711)  # Postgres runs as another account where the tests run as root
    resources.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def docker_answers() -> bool:
    """Asked of the engine itself: the command-line client may be there without one."""
    client = shutil.which("docker")
    if client is None:
        return False
    try:
        answer = subprocess.run([client, "version"], capture_output=True, check=False, timeout=10)
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0


def _start_containers(resources: AsyncExitStack, postgres: bool, kafka: bool) -> tuple[str, str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own warnings; ours stay errors
        from testcontainers.community.kafka import KafkaContainer  # noqa: PLC0415
        from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415

        dsn = bootstrap = ""
        if postgres:
            database = PostgresContainer(POSTGRES_IMAGE, driver=None)
            database.start()
            resources.callback(database.stop)
            dsn = database.get_connection_url()
        if kafka:
            broker = KafkaContainer().with_kraft()  # its start script fits its own default image
            broker.start()
            resources.callback(broker.stop)
            bootstrap = broker.get_bootstrap_server()
        return dsn, bootstrap, "containers"
