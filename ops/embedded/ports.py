"""Loopback ports: finding a free one, checking a wished one, and waiting until a Kafka-protocol server answers."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from schemas.errors import Refused

HOST = "127.0.0.1"
POLL_SECONDS = 0.02
FIRST_PORT, LAST_PORT = 10_000, 32_767
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

# Kafka protocol, ApiVersions request (key 18) version 0 with correlation id 1 and client id "a44": every
# broker answers it before it knows anything about the client.
_BODY = struct.pack(">hhih3s", 18, 0, 1, 3, b"a44")
API_VERSIONS_REQUEST = struct.pack(">i", len(_BODY)) + _BODY


def free_port(wished: int = 0) -> int:
    """A port that nobody listens on at this moment; with `wished` that very one or a refusal."""
    candidates = [wished] if wished else [*_quiet_ports(), 0]
    for candidate in candidates:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, candidate))
            except OSError as exc:
                problem = exc
                continue
            port: int = probe.getsockname()[1]
            return port
    raise Refused(
        "E_CONFIG",
        f"Port {wished} on {HOST} cannot be used ({problem.strerror}). Choose another port, or 0 for a free one.",
    ) from problem


def _quiet_ports(tries: int = 20) -> list[int]:
    """Below those that the system gives to connections: a server that is down for a moment would find its port taken by
    some client, or a client that looks for it would be connected to itself.
    """
    try:
        last = min(LAST_PORT, int(EPHEMERAL.read_text().split()[0]) - 1)
    except (OSError, ValueError):
        last = LAST_PORT
    return random.sample(range(FIRST_PORT, last + 1), tries) if last - FIRST_PORT >= tries else []


async def answers_kafka(port: int) -> bool:
    """Whether the server at `port` answers a Kafka request now."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    try:
        writer.write(API_VERSIONS_REQUEST)
        answer = await reader.readexactly(8)
        return int.from_bytes(answer[4:8], "big") == 1
    except (OSError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.close()


async def wait_for_kafka(port: int, is_running: Callable[[], bool], seconds: float) -> bool:
    """True once it answers; False when its process ended or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            while is_running():
                if await answers_kafka(port):
                    return True
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        pass  # the caller tells what was waited for, with the log
    return False
