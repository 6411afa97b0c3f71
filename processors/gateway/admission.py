"""What stands between a connection and its handlers: whose request it is, and whether there is a seat for it."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from processors.gateway.callers import CALLER, FORWARDED, peer_of
from processors.gateway.connection import ProblemConnection
from processors.gateway.connections import HEALTH, Connections

CONNECTIONS = web.AppKey("connections", Connections)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Raises `Unavailable` E_OVERLOADED where a bound on connections is passed; health checks are always answered."""
    bounds = request.app[CONNECTIONS]
    peer = peer_of(request.transport)
    caller = request[CALLER] = bounds.callers.caller(peer, request.headers.getall(FORWARDED, ()))
    protocol = request.protocol
    if isinstance(protocol, ProblemConnection) and protocol.past is not None and request.path not in HEALTH:
        raise bounds.refusal(protocol.past)
    if caller == peer or request.path in HEALTH:
        return await handler(request)
    with bounds.request_of(caller):
        return await handler(request)
