"""Listening: one site on one address, stopped without leaving a request unanswered for long."""

import asyncio
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from processors.gateway.admission import CONNECTIONS
from processors.gateway.connection import ProblemConnection
from processors.gateway.connections import Connections
from processors.gateway.limits import Limits
from schemas.errors import Refused

_GRACE = 5.0  # seconds that running requests get when the process stops


class _ProblemServer(web.Server):
    """Makes connections that are bounded, and answer even what cannot be parsed in our form."""

    header_seconds: float
    bounds: Connections | None

    def __call__(self) -> web.RequestHandler:
        made = ProblemConnection(self, loop=self._loop, **self._kwargs)
        made.header_seconds = self.header_seconds
        made.bounds = self.bounds
        return made


class _Runner(web.AppRunner):
    header_seconds: float
    bounds: Connections | None

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        server = _ProblemServer(made.request_handler, request_factory=made.request_factory, **self._kwargs)
        server.header_seconds = self.header_seconds
        server.bounds = self.bounds
        return server


@dataclass(frozen=True, slots=True)
class RunningSite:
    """`port` is the one that is bound, also where any free one was asked for."""

    host: str
    port: int
    runner: web.AppRunner
    stopping: asyncio.Event

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def stop(self) -> None:
        """Take no more connections, let running requests end, close; their answers say that nothing follows them."""
        self.stopping.set()
        await self.runner.cleanup()


async def serve(app: web.Application, host: str, port: int, limits: Limits | None = None) -> RunningSite:
    """Listen; port 0 takes a free one. Raises Refused E_CONFIG when the address cannot be had."""
    allowed = limits or Limits()
    options: dict[str, Any] = {
        "access_log": None,
        "auto_decompress": False,  # signatures are over the bytes as they came, and nothing swells while read
        "shutdown_timeout": _GRACE,
        "lingering_time": 2.0,
        "keepalive_timeout": allowed.idle_seconds,
    }
    stopping = asyncio.Event()

    async def say_goodbye(request: web.Request, response: web.StreamResponse) -> None:
        protocol = request.protocol
        is_past = isinstance(protocol, ProblemConnection) and protocol.past is not None
        if is_past or stopping.is_set():  # or the sender would put its next request on a connection that is closed
            response.headers["Connection"] = "close"
            response.force_close()

    app.on_response_prepare.append(say_goodbye)
    runner = _Runner(app, **options)
    runner.header_seconds = allowed.header_seconds
    runner.bounds = app.get(CONNECTIONS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as exc:
        await runner.cleanup()
        raise Refused(
            "E_CONFIG", f"the gateway cannot listen on {host}:{port} ({exc.strerror or exc}); choose another port"
        ) from exc
    return RunningSite(host, int(runner.addresses[0][1]), runner, stopping)
