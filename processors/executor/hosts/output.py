"""What the author's code prints, as log lines: always drained, each line bounded, so many lines a second.

A flood costs the reader almost nothing: past the limit bytes are dropped unread, and the number of lines
left out is logged once the second is over.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import structlog

TAIL_LETTERS = 300

_log = structlog.get_logger(__name__)


class Output:
    """One host's lines: `context` goes with each of them."""

    def __init__(self, lines_per_second: int, line_bytes: int) -> None:
        self.context: Mapping[str, Any] = {}
        self.last = ""
        self.line_bytes = line_bytes
        self._per_second = lines_per_second
        self._second = 0.0
        self._taken = 0
        self._left_out = 0

    def reader(self, stream: str) -> "PipeLines":
        return PipeLines(self, stream)

    @property
    def has_room(self) -> bool:
        """Whether a line would be logged now. Begins a new second when the last one is over."""
        now = time.monotonic()
        if now - self._second >= 1.0:
            self.flush()
            self._second = now
            self._taken = 0
        return self._taken < self._per_second

    def line(self, stream: str, text: str, **where: str) -> None:
        """Log one line, or count it as left out."""
        self.last = text[:TAIL_LETTERS]
        if not self.has_room:
            self._left_out += 1
            return
        self._taken += 1
        if len(text) > self.line_bytes:
            text = f"{text[: self.line_bytes]} [... {len(text) - self.line_bytes} more characters]"
        _log.info("step_host_output", stream=stream, text=text, **self.context, **where)

    def leave_out(self, lines: int) -> None:
        self._left_out += lines

    def flush(self) -> None:
        """Say how much was left out since the last time."""
        if self._left_out:
            _log.warning("step_host_output_left_out", lines=self._left_out, **self.context)
            self._left_out = 0


class PipeLines(asyncio.Protocol):
    """One pipe of the host."""

    def __init__(self, output: Output, stream: str) -> None:
        self._output = output
        self._stream = stream
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        if not self._output.has_room:
            self._output.leave_out(data.count(b"\n"))
            self._rest = b""
            return
        *lines, rest = (self._rest + data).split(b"\n")
        for number, line in enumerate(lines):
            if not self._output.has_room:
                self._output.leave_out(len(lines) - number)
                break
            self._print(line)
        if len(rest) > self._output.line_bytes:  # no end of line in sight
            self._print(rest)
            rest = b""
        self._rest = rest

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._rest:
            self._print(self._rest)
        self._output.flush()

    def _print(self, line: bytes) -> None:
        text = line.rstrip(b"\r").decode("utf-8", "replace")
        if text:
            self._output.line(self._stream, text)
