"""A parameter of the query that an operation does not know is refused by name: a misspelt filter would filter nothing.

What is known is read off the API's document. Webhooks are let alone: what their senders put behind an address is
their own, and so are the calls that take no token.
"""

import re
from collections.abc import Iterable, Iterator

from aiohttp import web

from processors.gateway.openapi import OPERATIONS
from processors.gateway.problems import Handler
from schemas.errors import Refused
from topology.names import hint


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


_KNOWN = {(one.method, _shape(one.path)): frozenset(one.query) for one in OPERATIONS if one.scope is not None}


def holding_to_parameters(routes: Iterable[web.RouteDef]) -> Iterator[web.RouteDef]:
    """The routes, those of the API with handlers that refuse what they do not know."""
    for route in routes:
        known = _KNOWN.get((route.method.lower(), _shape(route.path)))
        handler = route.handler if known is None else _strict(route.handler, known)
        yield web.RouteDef(route.method, route.path, handler, route.kwargs)


def _strict(handler: Handler, known: frozenset[str]) -> Handler:
    async def strict(request: web.Request) -> web.StreamResponse:
        if request.query_string:
            for name in request.query:
                if name not in known:
                    near = hint(name, known) or "; this call takes no parameters"
                    raise Refused("E_INVALID_PARAMETER", f"the parameter {name[:40]!r} is not known here{near}")
        return await handler(request)

    return strict
