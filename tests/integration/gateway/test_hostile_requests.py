"""Bytes that no honest client sends: always a problem document, never a 5xx, never a trace."""

import asyncio
import random

import pytest

from tests.integration.gateway.conftest import Gateway

PATHS = [
    b"/v1/\xff\xfe/trg_settle",
    b"/v1/pj_shop/\xff",
    b"/v1/%ff/%00",
    b"/v1/pj_shop/trg%00settle",
    b"/v1/automation/runs/\xff",
    b"/v1/automation/runs/%ff%00/log",
    b"/v1/automation/workflows/\xff/runs",
    b"/v1/automation/workflows/%00/runs",
    b"/v1/automation/triggers/\xff/sign",
    b"/v1/automation/runs?state=\xff",
    b"/v1/automation/runs?step=%ff&workflow=%00",
    b"/v1/automation/runs?since=%ed%a0%80",
    b"/v1/automation/runs?limit=99999999999999999999",
    b"/\xff",
    b"/" + b"a" * 7000,
    b"//v1//automation",
    b"/v1/automation/../automation/runs",
    b"http://[::1/v1",
]


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_strange_addresses_are_refused_in_form(gateway: Gateway, secret: str, method: bytes) -> None:
    for path in PATHS:
        head = (
            method + b" " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + gateway.token.encode() + b"\r\nA44-Idempotency-Key: k\r\n"
            b"A44-Timestamp: 1\r\nA44-Signature: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        )
        status, answer = await send(gateway, head)
        assert 400 <= status < 500 or (status == 200 and b'"runs"' in answer), (path, answer)
        assert b"Traceback" not in answer


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Type: \xff\xfe",
        b"Content-Encoding: \xff",
        b"A44-Idempotency-Key: \xff\xfe",
        b"A44-Signature: \xed\xa0\x80",
        b"A44-Timestamp: \xff",
        b"Authorization: Bearer \xff",
        b"Last-Event-ID: \xff",
        b"Expect: 200-maybe",
        b"Content-Length: 2",
        b"Transfer-Encoding: gzip, chunked",
        b"Upgrade: websocket",
        b"X-Forwarded-For: 203.0.113.1",
    ],
)
async def test_strange_headers_are_refused_in_form(gateway: Gateway, secret: str, header: bytes) -> None:
    for path in (
        b"/v1/pj_shop/trg_settle",
        b"/v1/automation/workflows/wf_invoice_settle/runs",
        b"/v1/automation/events",
    ):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + header + b"\r\nConnection: close\r\n"
        if not header.startswith(b"Content-Length"):
            head += b"Content-Length: 2\r\n"
        status, answer = await send(gateway, head + b"\r\n{}")
        assert 400 <= status < 500, (path, answer)
        assert b"application/problem+json" in answer
        assert b"Traceback" not in answer


async def test_noise_on_the_line_never_breaks_the_process(gateway: Gateway, secret: str) -> None:
    chance = random.Random(44)
    start = (
        b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 40\r\n\r\n"
    )
    for _ in range(40):
        noise = bytearray(start + chance.randbytes(40))
        for _ in range(chance.randrange(1, 6)):
            noise[chance.randrange(len(noise))] = chance.randrange(256)
        status, answer = await send(gateway, bytes(noise), patience=0.5)
        assert status == 0 or 400 <= status < 500, answer
    assert (await gateway.call("GET", "/v1/automation/whoami")).status == 200


async def test_a_sender_that_waits_for_leave_is_told_to_go_on_or_refused_before_it_sends(
    gateway: Gateway, secret: str
) -> None:
    head = (
        b"POST /v1/pj_shop/trg_settle HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nConnection: close\r\n"
    )
    _, answer = await send(gateway, head + b"Content-Length: 2\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 ")
    _, answer = await send(gateway, head + b"Content-Length: 50000000\r\n\r\n")
    assert b"HTTP/1.1 413 " in answer


async def send(gateway: Gateway, sent: bytes, patience: float = 15) -> tuple[int, bytes]:
    """Bytes on a connection of their own; status 0 where no answer came."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        async with asyncio.timeout(patience):
            answer = await reader.read()
    except (TimeoutError, ConnectionError):
        return 0, b""
    finally:
        writer.close()
    return (int(answer.split(b" ", 2)[1]), answer) if answer else (0, b"")
