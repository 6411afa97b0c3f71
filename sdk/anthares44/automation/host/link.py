"""The socket to the executor: messages in, frames out, from the loop and from the pulse's thread.

What is sent in one round of the loop leaves as one frame. When the other side is gone the process ends at
once: a host does not outlive its executor.
"""

import asyncio
import contextlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Never

from anthares44.automation.errors import bounded, shown
from anthares44.automation.wire import CREDIT_BYTES, FrameDecoder, Message, Outbox, WireError, encode_frame, to_bytes

EXIT_DRAINED, EXIT_BROKEN = 0, 70
_REASON_BYTES = 2048

_READ_BYTES = 32 * 1024  # what was read is answered in one frame: in smaller pieces the executor works beside the host
_LAST_WORDS_SECONDS = 2.0
_CONGESTED_BYTES = 1024 * 1024


class Link:
    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        receive: Callable[[list[Message]], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._receive = receive
        self._decoder = FrameDecoder()
        self._outbox = Outbox()
        self._owed = 0
        self._window = CREDIT_BYTES
        self._scheduled = False
        # Frames are written whole: the pulse's thread writes while the loop may be blocked in a step.
        self._lock = threading.Lock()
        self._backlog = bytearray()

    def open(self) -> None:
        self._loop.add_reader(self._sock, self._readable)

    def resize(self, window: int) -> None:
        self._window = window
        self._outbox.resize(window)

    @property
    def congested(self) -> bool:
        """Whether the executor is so far behind that what may be dropped should be."""
        return len(self._backlog) > _CONGESTED_BYTES

    def send(self, message: Message) -> None:
        """Queue a message; only from the loop's thread."""
        self._outbox.put(message)
        if not self._scheduled:
            self._schedule()

    def tell(self, text: str) -> None:
        """Queue the JSON text of a message that is bound to a run; only from the loop's thread."""
        self._outbox.put_bound(to_bytes(text))
        if not self._scheduled:
            self._schedule()

    def credit(self, message: Message) -> None:
        """The executor has taken in so many bytes."""
        self._outbox.grant(message["bytes"])
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._flush)

    def send_now(self, message: Message) -> None:
        """Write one message as a frame of its own; from any thread."""
        self._write(encode_frame([message]))

    def broken(self, whose: str, error: BaseException) -> Never:
        """End a process that cannot go on: the other side broke the protocol, or we have a fault."""
        traceback.print_exception(error)
        self.finish(bounded(f"{whose}: {shown(error)}", _REASON_BYTES), EXIT_BROKEN)

    def finish(self, reason: str, code: int) -> Never:
        """Send what waits and BYE, then end the process."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # a closed stream of the author's has nothing to flush
                stream.flush()
        with contextlib.suppress(OSError), self._lock:  # the executor may be gone: then nobody waits for this
            self._sock.settimeout(_LAST_WORDS_SECONDS)
            self._sock.sendall(self._backlog + self._outbox.take() + encode_frame([{"t": "BYE", "reason": reason}]))
        os._exit(code)

    def _flush(self) -> None:
        self._scheduled = False
        data = self._outbox.take()
        if data:
            self._write(data)

    def _write(self, data: bytes) -> None:
        with self._lock:
            if self._backlog:
                # The loop drains it; should the loop be blocked, whoever writes tries, and notices a lost link.
                self._backlog += data
                del self._backlog[: self._send(self._backlog)]
                return
            sent = self._send(data)
            if sent == len(data):
                return
            self._backlog += memoryview(data)[sent:]
        self._loop.call_soon_threadsafe(self._loop.add_writer, self._sock, self._drain)

    def _drain(self) -> None:
        with self._lock:
            del self._backlog[: self._send(self._backlog)]
            if self._backlog:
                return
        self._loop.remove_writer(self._sock)

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            os._exit(0)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        was_scheduled, self._scheduled = self._scheduled, True
        try:
            self._receive(self._decoder.feed(data))
        except (WireError, KeyError, TypeError) as error:
            self.broken("protocol", error)
        if not was_scheduled:
            self._schedule()  # behind the first rounds of what was started: what ends in them shares the frame
        self._owed += self._decoder.take_consumed()
        if self._owed >= self._window // 4:
            self.send({"t": "CREDIT", "bytes": self._owed})
            self._owed = 0
