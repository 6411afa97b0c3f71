"""Measures on a loopback port, as text that Prometheus reads; beside them the memory, time and files of the process.

A thread of its own answers, so that a busy or stuck event loop is seen and not hidden. No port, no thread.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, start_http_server

from ops.telemetry.collector import MeasuresCollector
from processors.ports.measures import Measures
from schemas.errors import Refused

HOST = "127.0.0.1"


@asynccontextmanager
async def exported(measures: Measures, port: int | None) -> AsyncIterator[Mapping[str, object]]:
    """Answers what a ready line tells of it: nothing where `port` is None. Raises E_CONFIG for a port in use."""
    if port is None:
        yield {}
        return
    measures.set("build_info", 1, version("anthares44-automation-service"), platform.python_version())
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(MeasuresCollector(measures))
    try:
        server, thread = start_http_server(port, HOST, registry)
    except OSError as exc:
        raise Refused(
            "E_CONFIG",
            f"metrics_port is {port}, which cannot be used on {HOST} ({exc.strerror}); expected a free port, "
            "0 for any free one, or no value for no metrics",
            details={"setting": "metrics_port"},
        ) from exc
    try:
        yield {"metrics": f"http://{HOST}:{server.server_port}/metrics"}
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
