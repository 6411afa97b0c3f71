"""Lines of `ctx.log` on their way to the executor: so many a second, whoever writes them and however fast.

A loop that writes without end costs itself lines, and nobody else memory or time. What was left out is counted, and
told once the second is over.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from anthares44.automation.wire import Message

LINES_PER_SECOND = 200


class Lines:
    """`send` is called on the loop; `has_room` says whether the executor keeps up."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[Message], None], has_room: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._send = send
        self._has_room = has_room
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._second = 0.0
        self._taken = 0
        self._left_out = 0

    def put(self, line: Message) -> None:
        """From any thread."""
        if not self._takes_one():
            return
        if threading.get_ident() == self._loop_thread:
            self._send(line)
        else:
            self._loop.call_soon_threadsafe(self._send, line)

    def _takes_one(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._second >= 1.0:
                self._second, self._taken = now, 0
            self._taken += 1
            if self._taken <= LINES_PER_SECOND and self._has_room():
                return True
            self._left_out += 1
            is_first = self._left_out == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._loop.call_later, 1.0, self._tell)
        return False

    def _tell(self) -> None:
        with self._lock:
            count, self._left_out = self._left_out, 0
        text = f"{count} lines of ctx.log were left out: a host sends {LINES_PER_SECOND} a second"
        self._send({"t": "LOG", "level": "warning", "text": text})
