"""The heartbeat: a thread that tells the executor each second that the process lives, and what holds it up.

It also beats while a step blocks the loop, and then names the run, the item and the line. When the executor is
gone the write ends the process, even though the loop cannot notice.
"""

import asyncio
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from anthares44.automation.errors import relative_to
from anthares44.automation.host.attempts import Attempt
from anthares44.automation.turns import Run
from anthares44.automation.wire import Message

PERIOD_SECONDS = 1.0
BLOCKED_SECONDS = 0.5
_STATM = Path("/proc/self/statm")


class Pulse:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send_now: Callable[[Message], None],
        attempts: Callable[[], list[Attempt]],
        root: Callable[[], str],
    ) -> None:
        self._loop = loop
        self._send_now = send_now
        self._attempts = attempts
        self._root = root
        self._loop_thread = threading.get_ident()
        self._asked = self._answered = time.monotonic()
        self._lag = 0.0

    def start(self) -> None:
        threading.Thread(target=self._beat_for_ever, name="a44-pulse", daemon=True).start()

    def beat(self, number: int | None = None) -> Message:
        """The heartbeat as it is now; `number` answers a PING."""
        now = time.monotonic()
        waiting = self._asked > self._answered
        lag = now - self._asked if waiting else self._lag
        message: Message = {
            "t": "BEAT",
            "lag": round(lag, 6),
            "tokens": [attempt.beat(now) for attempt in self._attempts()],
            "blocked": self._blocked() if waiting and lag > BLOCKED_SECONDS else None,
            "rss": resident_bytes(),
        }
        if number is not None:
            message["n"] = number
        return message

    def _beat_for_ever(self) -> None:
        never = threading.Event()
        while True:
            if self._answered >= self._asked:
                self._asked = time.monotonic()
                self._loop.call_soon_threadsafe(self._answer)
            never.wait(PERIOD_SECONDS)
            self._send_now(self.beat())

    def _answer(self) -> None:
        self._answered = time.monotonic()
        self._lag = self._answered - self._asked

    def _blocked(self) -> dict[str, Any] | None:
        """Whose code the loop's thread is in: the stack holds the attempt or the run as a local of ours."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the documented way to see a stack
        file, line = self._author_line(frame)
        while frame is not None:
            for holder in frame.f_locals.values():
                # By type alone: to ask an author's object for its class may be to run code of theirs, in this thread.
                if type(holder) is Attempt:
                    return {"run": holder.run.run_id, "item": holder.item.id, "file": file, "line": line}
                if type(holder) is Run:
                    return {"run": holder.run_id, "item": None, "file": file, "line": line}
            frame = frame.f_back
        return None

    def _author_line(self, frame: FrameType | None) -> tuple[str | None, int | None]:
        while frame is not None:
            file = relative_to(self._root(), frame.f_code.co_filename)
            if file is not None:
                return file, frame.f_lineno
            frame = frame.f_back
        return None, None


def resident_bytes() -> int:
    """Memory in use now on Linux; the most ever used elsewhere."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
