"""What stands between a connection and its handlers: whose request it is, and whether there is a seat for it."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from processors.gateway.callers import CALLER
from processors.gateway.connection import ProblemConnection
from processors.gateway.connections import HEALTH, Connections

CONNECTIONS = web.AppKey("connections", Connections)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Raises `Unavailable` E_OVERLOADED where a bound on connections is passed; health checks are always answered."""
    connections = request.app[CONNECTIONS]
    request[CALLER] = connections.callers.of(request)
    protocol = request.protocol
    if isinstance(protocol, ProblemConnection) and protocol.past is not None and request.path not in HEALTH:
        raise connections.refusal(protocol.past)
    return await connections.through(request, handler)
