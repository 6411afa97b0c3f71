"""Case A14: bodies are counted while they are read, whatever was announced, and memory stays flat."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from processors.gateway.bodies import BUDGET
from tests.integration.gateway.conftest import PROJECT, Gateway, raw


async def test_a14_a_body_over_one_megabyte_is_refused_while_it_is_read(gateway: Gateway, secret: str) -> None:
    budget, held = gateway.app[BUDGET], [0]

    async def endless() -> object:
        while True:
            yield b"x" * 65_536

    async def watch() -> None:
        while True:
            held.append(budget.held)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    async with gateway.session.post(
        f"{gateway.url}/v1/{PROJECT}/trg_settle", data=endless(), headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 413
        assert (await response.json(content_type=None))["code"] == "E_BODY_TOO_LARGE"
    watching.cancel()
    assert 0 < max(held) <= 1_000_000
    assert budget.held == 0


async def test_a14_memory_stays_flat_however_much_is_sent(gateway: Gateway, secret: str) -> None:
    sent = [0]

    async def fifty_megabytes() -> AsyncIterator[bytes]:
        for _ in range(800):
            sent[0] += 65_536
            yield b"x" * 65_536

    await gateway.hook(secret, b"{}")  # what is made once is there
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        async with gateway.session.post(
            f"{gateway.url}/v1/{PROJECT}/trg_settle",
            data=fifty_megabytes(),
            headers={"Content-Type": "application/json"},
        ) as response:
            assert response.status == 413
        assert tracemalloc.get_traced_memory()[1] - before < 8_000_000
    finally:
        tracemalloc.stop()
    assert sent[0] < 50_000_000, "the door does not take the rest"


@pytest.mark.parametrize(
    ("announced", "body", "status", "code"),
    [
        (b"Content-Length: 50000000", b"{", 413, b"E_BODY_TOO_LARGE"),
        (b"Content-Length: 1000001", b"{", 413, b"E_BODY_TOO_LARGE"),
        (b"Content-Length: 1000", b"{}", 408, b"E_BODY_TIMEOUT"),
        (b"Content-Length: -1", b"{}", 400, b""),
        (b"Content-Length: 2\r\nContent-Length: 3", b"{}x", 400, b""),
        (b"Content-Length: 2\r\nTransfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n", 400, b""),
    ],
    ids=["fifty times", "by a byte", "too much", "below nothing", "twice", "and chunked"],
)
async def test_a14_a_length_that_lies_is_found_out(
    gateway: Gateway, announced: bytes, body: bytes, status: int, code: bytes
) -> None:
    """What is announced as too large is refused before it is read."""
    head = b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    answer = await raw(gateway, head + announced + b"\r\n\r\n" + body)
    assert answer.split(b"\r\n")[0].split(b" ")[1] == b"%d" % status
    assert code in answer
    assert gateway.app[BUDGET].held == 0


async def test_a14_of_more_than_was_announced_nothing_is_a_body(gateway: Gateway, secret: str) -> None:
    head = b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    answer = await raw(gateway, head + b"Content-Length: 2\r\n\r\n{}" + b"x" * 2_000_000)
    assert answer.split(b"\r\n")[0].split(b" ")[1] in {b"400", b"401"}  # as the rest came with it or behind it
    assert gateway.app[BUDGET].held == 0
