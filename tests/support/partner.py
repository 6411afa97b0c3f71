"""A partner's HTTP server for tests: it records requests and answers as told."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Asked:
    method: str
    raw_path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Partner:
    """`url` is its base URL; `answer` decides what the next requests get."""

    url: str = ""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    answer: Answer | None = None

    def reply(
        self, status: int = 200, body: bytes | str = b"", content_type: str | None = None, **headers: str
    ) -> None:
        """Answer everything so. Header names are written with `_` for `-`."""
        data = body.encode() if isinstance(body, str) else body
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if content_type is not None:
            sent["Content-Type"] = content_type

        async def respond(_: web.Request) -> web.Response:
            return web.Response(status=status, body=data or None, headers=sent)

        self.answer = respond

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.method, request.raw_path, dict(request.headers), await request.read()))
        if self.answer is None:
            return web.Response()
        return await self.answer(request)


@asynccontextmanager
async def running_partner() -> AsyncIterator[Partner]:
    partner = Partner()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", partner.serve)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    partner.url, partner.port = str(server.make_url("")).rstrip("/"), server.port or 0
    try:
        yield partner
    finally:
        await server.close()
