"""Apache Kafka as one node in KRaft mode on the machine's Java, out of the folder compose/kafka/fetch.sh fills.

For tests against the real thing. Loopback only, free ports, data in the given folder.
"""

import asyncio
import shutil
import uuid
from pathlib import Path

from ops.embedded.ports import HOST, free_port, wait_for_kafka
from ops.embedded.process import Kept, Plan, Server, run_to_end
from schemas.errors import Unavailable

LIBRARIES = Path(__file__).parents[2] / "compose" / "kafka" / "target" / "libs"
START_SECONDS = 180.0  # on a busy machine a minute is not enough
FORMAT_SECONDS = 180.0
GRACE_SECONDS = 10.0
HEAP = "-Xmx512m"


def libraries() -> Path:
    if not any(LIBRARIES.glob("kafka_*.jar")):
        raise Unavailable(
            "E_EMBEDDED_STACK",
            f"Apache Kafka is not in {LIBRARIES}. Bring it with: sh compose/kafka/fetch.sh (needs Maven).",
        )
    return LIBRARIES


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise Unavailable("E_EMBEDDED_STACK", "Apache Kafka needs Java 17, and there is no java in PATH.")
    return found


class ApacheKafka(Server):
    """`start` and `stop` may alternate: port and data stay until the folder goes."""

    name = "broker"

    def __init__(self, folder: Path, logs: Path, port: int = 0) -> None:
        self._folder = folder
        self._logs = logs
        super().__init__()
        self._controller_port = 0
        self.port = port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    async def start_empty(self) -> None:
        """As a new cluster at the old address: topics, records and offsets are gone."""
        await asyncio.to_thread(shutil.rmtree, self._folder / "data", ignore_errors=True)
        await self.start()

    async def start(self) -> None:
        self.port = free_port(self.port)
        self._controller_port = free_port(self._controller_port)
        settings = self._folder / "server.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        if not (self._folder / "data").exists():
            format_command = ("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings))
            await run_to_end(self._plan("Formatting the Kafka folder", *format_command), FORMAT_SECONDS)
        kept = self._kept = await Kept.start(self._plan("Apache Kafka", "kafka.Kafka", str(settings)))
        if not await wait_for_kafka(self.port, lambda: kept.is_running, START_SECONDS):
            await self.stop()
            raise kept.failure("did not start")

    def _plan(self, name: str, main_class: str, *words: str) -> Plan:
        logging = Path(__file__).with_name("apache-log4j2.yaml")
        return Plan(
            name=name,
            command=(
                java(),
                HEAP,
                "-XX:TieredStopAtLevel=1",  # a short life: a quick start counts for more than peak speed
                "-XX:-UsePerfData",  # would leave a folder in the shared temporary one, as native libraries would
                f"-Djava.io.tmpdir={self._folder}",
                f"-Dlog4j2.configurationFile={logging}",
                *("-cp", f"{libraries()}/*", main_class, *words),
            ),
            cwd=self._folder,
            log=self._logs / "kafka.log",
            grace=GRACE_SECONDS,
        )

    def _settings(self) -> dict[str, str | int]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            # A single node: what is usually three must be one, and a group need not wait for more members.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }


def _cluster_id() -> str:
    """Kafka writes such ids as 22 characters of URL-safe base64 that do not start with a dash."""
    return "a" + uuid.uuid4().hex[:21]
