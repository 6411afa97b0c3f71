"""Messages between the bare executor and its step host: what is sent in one turn of the loop is one frame.

A frame is its length in four bytes and a msgpack list of messages: `[run]` starts one, `[run, step]` says that a
result is on record, `[run, step, result, is the last]` is a result.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Frames(asyncio.Protocol):
    """`heard` is called with each message; `lost` when the other side is gone."""

    def __init__(self, heard: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        self._heard = heard
        self._lost = lost
        self._inbox = bytearray()
        self._outbox: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's own signature
        self._lost()

    def data_received(self, data: bytes) -> None:
        self._inbox += data
        begin = 0
        while len(self._inbox) - begin >= LENGTH_BYTES:
            body = begin + LENGTH_BYTES
            end = body + int.from_bytes(self._inbox[begin:body], "big")
            if end > len(self._inbox):
                break
            for message in _decode(self._inbox[body:end]):
                self._heard(message)
            begin = end
        del self._inbox[:begin]

    def send(self, *message: Any) -> None:
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        body = _encode(self._outbox)
        self._outbox = []
        self._transport.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
