"""The executor's end of one host's socket: messages out in one frame a loop turn, messages in, byte credit.

The frame format is the SDK's wire module; what a host sends is checked by `messages` before it is handed on.
`lost` is called once, with a reason, when the other side ends the link or breaks the format.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import msgspec

from anthares44.automation.wire import CONTROL, CREDIT_BYTES, Chunks, Outbox, Payloads, WireError, encode_message
from processors.executor.hosts.messages import KINDS, Chunk, Credit, Incoming, read_frame

RETURN_CREDIT_AT = 256 * 1024
_CONTROL_KINDS = frozenset(kind for name, kind in KINDS.items() if name in CONTROL)
_OWN_KINDS = frozenset({Credit, Chunk})
_encode_json = msgspec.json.Encoder().encode


def _encode(message: dict[str, Any]) -> bytes:
    try:
        return _encode_json(message)
    except UnicodeEncodeError:  # a name with a lone surrogate, as its host gave it
        return encode_message(message)


class Link(asyncio.Protocol):
    """Made with what to do with messages; `open` begins. Messages sent before that wait.

    `is_broken`: it is over because the other side broke the format.
    """

    def __init__(self, receive: Callable[[Incoming], None], lost: Callable[[str], None]) -> None:
        self.over = self.is_broken = False
        self._receive = receive
        self._lost = lost
        self._payloads, self._chunks = Payloads(), Chunks()
        self._outbox = Outbox(CREDIT_BYTES, _encode)
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
            for payload in self._payloads.feed(data):
                if self._take(payload):
                    self._owed += len(payload)
        except WireError as exc:
            self.is_broken = True
            self._end(f"it broke the frame format: {exc}")
            return
        self._give_back()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"its socket failed: {exc}" if exc else "it closed its socket")

    def _take(self, payload: bytes) -> bool:
        """Hand on the messages of a frame. Whether it was sent on credit."""
        messages, fault = read_frame(payload)
        for message in messages:
            if self.over:
                break
            if type(message) in _OWN_KINDS:
                self._take_own(message)
            else:
                self._receive(message)
        if fault is not None and not self.over:
            raise fault
        return not _CONTROL_KINDS.issuperset(map(type, messages))

    def _take_own(self, message: Incoming) -> None:
        if isinstance(message, Credit):
            self._outbox.grant(message.bytes)
            self._flush()
        elif isinstance(message, Chunk):
            self._join(message)

    def _join(self, chunk: Chunk) -> None:
        whole = self._chunks.join(chunk.id, chunk.n, chunk.data, last=chunk.last)
        if whole is None:
            return
        messages, fault = read_frame(whole)
        if fault is not None or len(messages) != 1 or isinstance(messages[0], Chunk):
            raise fault or WireError("chunks must join to exactly one message")
        self._receive(messages[0])

    def _flush(self) -> None:
        self._flush_planned = False
        if self._transport is None or self._transport.is_closing():
            return
        data = self._outbox.take()
        if data:
            self._transport.write(data)

    def _give_back(self) -> None:
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
