"""Bounds on connections: who comes past them is told or closed, and health checks are answered all the same."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.request import urlopen

import pytest

from ops.telemetry import exported
from processors.gateway.admission import CONNECTIONS
from processors.gateway.connections import SPARE_EACH
from processors.gateway.limits import Limits
from processors.ports.addresses import networks_of
from tests.integration.gateway.conftest import Gateway
from tests.support.waiting import until

EVENTS = "/v1/automation/events"
WHOAMI = "/v1/automation/whoami"
PATIENCE = 20.0


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def asked(gateway: Gateway, path: str) -> tuple[int, str]:
    """Status and code on a connection of its own, and (0, "") where that was closed at once."""
    async with connected(gateway) as (reader, writer), asyncio.timeout(PATIENCE):
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        try:
            answer = await reader.read()
        except ConnectionError:
            return 0, ""
    if not answer:
        return 0, ""
    told, _, body = answer.partition(b"\r\n\r\n")
    return int(told.split()[1]), json.loads(body).get("code", "")


def read(url: str) -> str:
    with urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310  an address of this test's
        text: str = answer.read().decode()
        return text


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    return True


class TestOfTheProcess:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections=5)

    async def test_past_it_health_is_answered_and_all_else_is_told_to_come_again(self, gateway: Gateway) -> None:
        bounds = gateway.app[CONNECTIONS]
        async with AsyncExitStack() as others:
            for _ in range(5):
                await others.enter_async_context(connected(gateway))
            await until(lambda: bounds.open == 5, "five are connected")
            assert await asked(gateway, "/healthz") == (200, "")
            assert await asked(gateway, "/readyz") == (200, "")
            assert await asked(gateway, WHOAMI) == (429, "E_OVERLOADED")
            async with exported(gateway.measures, 0) as where:  # measures have a port of their own
                told = await asyncio.to_thread(read, str(where["metrics"]))
            assert 'connections_refused_total{bound="process"} 3.0' in told
            assert "connections_open 5.0" in told
            assert await asked(gateway, "/nowhere") == (429, "E_OVERLOADED")
            async with connected(gateway) as (reader, _):
                assert await is_closed(reader)  # it asked nothing in its second
            assert bounds.open == 5
        await until(lambda: bounds.open == 0, "they left")
        assert await asked(gateway, WHOAMI) == (200, "")
        await until(lambda: (bounds.open, bounds.spare) == (0, 0), "nothing is left of anybody")

    async def test_an_answer_past_it_ends_its_connection(self, gateway: Gateway) -> None:
        async with AsyncExitStack() as others:
            for _ in range(5):
                await others.enter_async_context(connected(gateway))
            await until(lambda: gateway.app[CONNECTIONS].open == 5, "five are connected")
            async with connected(gateway) as (reader, writer), asyncio.timeout(PATIENCE):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"Connection: close" in await reader.read()  # to its end


class TestOfAnAddress:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections=1000, connections_per_address=20, header_seconds=4.0)

    async def test_two_hundred_that_send_a_byte_at_a_time_hold_no_more_than_their_share(self, gateway: Gateway) -> None:
        bounds = gateway.app[CONNECTIONS]
        async with AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(connected(gateway)) for _ in range(200)]
            counted = ("connections_refused_total", "address")
            await until(lambda: gateway.measures.value(*counted) == 180, "all have come")
            assert bounds.open == 20
            assert bounds.spare <= SPARE_EACH
            for _, writer in slow:
                with suppress(ConnectionError):
                    writer.write(b"G")
            assert await asked(gateway, WHOAMI) in ((429, "E_OVERLOADED"), (0, ""))
            await until(lambda: bounds.spare == 0, "those past the bound had their second")
            assert await asked(gateway, "/healthz") == (200, "")
            await asyncio.gather(*(is_closed(reader) for reader, _ in slow))  # the others had their two
        await until(lambda: bounds.open == 0, "nothing is left of them")
        assert await asked(gateway, WHOAMI) == (200, "")


class TestBehindATrustedProxy:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections_per_address=2, trusted_proxies=networks_of(["127.0.0.1"]))

    async def test_the_requests_of_each_caller_are_bounded_and_not_the_proxys_connections(
        self, gateway: Gateway
    ) -> None:
        bounds = gateway.app[CONNECTIONS]
        one, other = ({"X-Forwarded-For": address} for address in ("203.0.113.9", "203.0.113.10"))
        missing = "/v1/automation/runs?limit=1"
        release = asyncio.Event()
        async with AsyncExitStack() as stack:
            for _ in range(10):
                await stack.enter_async_context(connected(gateway))  # of the proxy, and many
            await until(lambda: bounds.open >= 10, "all are connected")
            sent = [gateway.call("POST", EVENTS, headers=json_of(one), data=slow(release)) for _ in range(2)]
            waiting = [asyncio.create_task(one_of_them) for one_of_them in sent]
            await until(lambda: bounds.under_way("203.0.113.9") == 2, "two requests are under way")
            refused = await gateway.call("GET", missing, headers=one)
            assert (refused.status, refused.code) == (429, "E_OVERLOADED")
            assert "2 connections of your address" in refused.body["detail"]
            assert (await gateway.call("GET", "/healthz", headers=one)).status == 200
            assert (await gateway.call("GET", missing, headers=other)).status == 200
            spoofed = {"X-Forwarded-For": "198.51.100.7, 203.0.113.9"}
            assert (await gateway.call("GET", missing, headers=spoofed)).status == 429
            release.set()
            await asyncio.gather(*waiting)
            assert (await gateway.call("GET", missing, headers=one)).status == 200
            assert bounds.under_way("203.0.113.9") == 0


def json_of(headers: dict[str, str]) -> dict[str, str]:
    return {**headers, "Content-Type": "application/json"}


async def slow(release: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"{"
    await release.wait()
    yield b"}"
