"""More than a gateway can do: it says so, with the time to come again, and holds no more than it may."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import psycopg
import pytest
from aiohttp import web

from processors.gateway.bodies import BUDGET
from processors.gateway.limits import Limits
from processors.gateway.server import serve
from tests.integration.gateway.conftest import Gateway
from tests.support.waiting import until

EVENTS = "/v1/automation/events"
BODY = 900_000


@pytest.fixture
def limits() -> Limits:
    return Limits(body_seconds=60.0, bodies=2 * BODY + 100_000)


@pytest.fixture
def queued() -> int:
    return 3


@asynccontextmanager
async def half_sent(gateway: Gateway, size: int = BODY) -> AsyncIterator[asyncio.StreamWriter]:
    """A sender whose body stops before its last byte."""
    _, writer = await _connected(gateway.url)
    writer.write(_head(gateway, BODY + 1) + b" " * size)
    try:
        yield writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _head(gateway: Gateway, length: int) -> bytes:
    lines = [f"POST {EVENTS} HTTP/1.1", "Host: x", f"Authorization: Bearer {gateway.token}"]
    lines += ["Content-Type: application/json", f"Content-Length: {length}", "", ""]
    return "\r\n".join(lines).encode()


async def _connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def test_bodies_in_flight_are_bounded_and_who_comes_then_is_told_to_come_again(gateway: Gateway) -> None:
    budget = gateway.app[BUDGET]
    async with AsyncExitStack() as senders:
        for _ in range(2):
            await senders.enter_async_context(half_sent(gateway))
        await until(lambda: budget.held == 2 * BODY, "two bodies are in flight")
        answer = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": "x" * 200_000})
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, "E_OVERLOADED", "1")
        small = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1})
        assert small.status == 202  # there is room for this one
        assert budget.held == 2 * BODY
    await until(lambda: budget.held == 0, "those who left hold nothing")
    again = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": "x" * 200_000})
    assert again.status == 202


async def test_an_announced_length_takes_nobodys_place(gateway: Gateway) -> None:
    async with AsyncExitStack() as senders:
        for _ in range(8):
            await senders.enter_async_context(half_sent(gateway, 0))
        assert (await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1})).status == 202
        assert gateway.app[BUDGET].held == 0


async def test_past_the_bound_of_the_journal_a_door_answers_429_and_takes_what_waited(gateway: Gateway) -> None:
    """The fixture lets three requests wait for their commit."""
    async with await psycopg.AsyncConnection.connect(gateway.dsn) as conn:
        await conn.execute("lock table automation.idempotency_keys in share mode")
        first = asyncio.create_task(_event(gateway, 0))
        await until(lambda: _is_blocked(gateway), "the first is being written")
        waiting = [asyncio.create_task(_event(gateway, n)) for n in range(1, 9)]
        await until(lambda: sum(one.done() for one in waiting) == 5, "five of eight are answered")
        refused = [one.result() for one in waiting if one.done()]
        assert {(one[0], one[1]["code"], one[2]) for one in refused} == {(429, "E_OVERLOADED", "1")}
        assert {one[1]["retry_after"] for one in refused} == {1}
    answers = await asyncio.gather(first, *waiting)
    assert sorted(status for status, *_ in answers) == [202] * 4 + [429] * 5
    assert len(await gateway.rows("select id from automation.outbox")) == 4


async def _event(gateway: Gateway, number: int) -> tuple[int, dict[str, object], str | None]:
    answer = await gateway.call("POST", EVENTS, json={"type": "a.b", "data": number})
    return answer.status, answer.body, answer.headers.get("Retry-After")


async def _is_blocked(gateway: Gateway) -> bool:
    waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return bool(await gateway.rows(waiting))


async def test_headers_that_come_a_byte_at_a_time_end_with_the_connection() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.add_routes([web.get("/", hello)])
    site = await serve(app, "127.0.0.1", 0, Limits(header_seconds=1.0))
    try:
        reader, writer = await _connected(site.url)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readuntil(b"hello")  # a whole one is answered, on the same connection
        async with asyncio.timeout(20):
            dribble = asyncio.create_task(_dribble(writer))
            with suppress(ConnectionResetError):  # what it had not read when it closed
                assert await reader.read() == b""
        dribble.cancel()
        writer.close()
    finally:
        await site.stop()


async def test_a_connection_that_asks_nothing_is_closed() -> None:
    site = await serve(web.Application(), "127.0.0.1", 0, Limits(idle_seconds=0.2))
    try:
        reader, writer = await _connected(site.url)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
    finally:
        await site.stop()


async def _dribble(writer: asyncio.StreamWriter) -> None:
    for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.01)
