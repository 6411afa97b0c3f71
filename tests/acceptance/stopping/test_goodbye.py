"""A site that stops answers what it has begun, says that nothing follows, and closes connections at rest."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from processors.gateway.server import serve


async def test_requests_under_way_are_answered_and_told_that_the_connection_ends() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        begun.set()
        await release.wait()
        return web.Response(text="done")

    async def quick(_: web.Request) -> web.StreamResponse:
        return web.Response(text="quick")

    app = web.Application()
    app.add_routes([web.get("/slow", slow), web.get("/quick", quick)])
    site = await serve(app, "127.0.0.1", 0)
    async with aiohttp.ClientSession(site.url) as session:
        async with session.get("/quick") as response:
            assert response.headers.get("Connection") != "close"
        under_way = asyncio.create_task(session.get("/slow"))
        await begun.wait()
        stopping = asyncio.create_task(site.stop())
        await site.stopping.wait()
        release.set()
        async with await under_way as response:
            assert (response.status, response.headers["Connection"]) == (200, "close")
            assert await response.text() == "done"
        await stopping
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("/quick")
