"""The executor's end of one host's socket: messages out in one frame a loop turn, messages in, byte credit.

The frame format is the SDK's wire module; what a host sends is checked by `messages` before it is handed on.
`lost` is called once, with a reason, when the other side ends the link or breaks the format.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, cast

import msgspec

from anthares44.automation.wire import FrameDecoder, Outbox, WireError
from processors.executor.hosts.messages import Credit, Incoming, read

RETURN_CREDIT_AT = 256 * 1024


def _loads(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return json.loads(payload)  # slower, and takes a lone surrogate written as an escape


class Link(asyncio.Protocol):
    """Made with what to do with messages; `open` begins. Messages sent before that wait.

    `is_broken`: it is over because the other side broke the format.
    """

    def __init__(self, receive: Callable[[Incoming], None], lost: Callable[[str], None]) -> None:
        self.over = self.is_broken = False
        self._receive = receive
        self._lost = lost
        self._decoder = FrameDecoder(_loads)
        self._outbox = Outbox()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._flush_planned = False
        self._owed = 0

    async def open(self, end: socket.socket) -> None:
        await self._loop.create_unix_connection(lambda: self, sock=end)

    def send(self, message: dict[str, Any]) -> None:
        """Leaves with everything else that gathers until the loop comes round."""
        self._outbox.put(message)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """What was sent leaves first; nothing is received any more, and `lost` is not called."""
        if self.over:
            return
        self.over = True
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def expect_end(self, within: float) -> None:
        """The process is gone: what it sent is still read, for as long as a copy of its end may be open."""
        if not self.over:
            self._loop.call_later(within, self._end, "a process that it left behind holds its socket")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                if self.over:
                    return
                checked = read(message)
                if type(checked) is Credit:
                    self._outbox.grant(checked.bytes)
                    self._flush()
                else:
                    self._receive(checked)
        except WireError as exc:
            self.is_broken = True
            self._end(f"it broke the frame format: {exc}")
            return
        self._give_back()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"its socket failed: {exc}" if exc else "it closed its socket")

    def _flush(self) -> None:
        self._flush_planned = False
        if self._transport is None or self._transport.is_closing():
            return
        data = self._outbox.take()
        if data:
            self._transport.write(data)

    def _give_back(self) -> None:
        self._owed += self._decoder.take_consumed()
        if self._owed >= RETURN_CREDIT_AT:
            self.send({"t": "CREDIT", "bytes": self._owed})
            self._owed = 0

    def _end(self, reason: str) -> None:
        if self.over:
            return
        self.over = True
        if self._transport is not None:
            self._transport.abort()
        self._lost(reason)
