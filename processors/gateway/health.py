"""Is the process alive, can it serve, and who is asking."""

from aiohttp import web

from processors.gateway.parts import Parts, json_response
from processors.ports.tokens import READ


class Health:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def alive(self, _: web.Request) -> web.StreamResponse:
        """The process answers; nothing else is asked."""
        return json_response({"status": "alive"})

    async def ready(self, _: web.Request) -> web.StreamResponse:
        """Postgres answers and its schema fits this version, else 503."""
        await self._parts.queries.check_ready()
        return json_response({"status": "ready"})

    async def whoami(self, request: web.Request) -> web.StreamResponse:
        token = await self._parts.access.require(request, READ)
        return json_response(
            {
                "project_id": token.project_id,
                "token_id": token.token_id,
                "name": token.name,
                "scopes": sorted(token.scopes),
                "expires_at": token.expires_at,
                "networks": [str(network) for network in token.networks],
            }
        )
