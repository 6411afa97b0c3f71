"""What the Kafka clients log: each distinct thing at once, and then at most now and then, with how often it came.

While a broker is away they say the same every few milliseconds, without limit.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

_log = structlog.get_logger("kafka.client")

QUIET_SECONDS: Final = 30.0
MOST_KINDS: Final = 500  # who says ever new things is forgotten, and heard again
_NUMBERS: Final = re.compile(r"\d+")


class Repetitions(logging.Filter):
    """Takes warnings and errors out of a logger and says them itself. Lines that differ in numbers are one thing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()  # the clients log from their threads
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        text = record.getMessage()
        repeated = self._count((record.name, _NUMBERS.sub("#", text)))
        if repeated is not None:
            say = _log.error if record.levelno >= logging.ERROR else _log.warning
            say("kafka_client", client=record.name, said=text, repeated=repeated, exc_info=record.exc_info or None)
        return False

    def _count(self, thing: tuple[str, str]) -> int | None:
        """How often it came since it was said last; None: it is not to be said now."""
        now = self._clock()
        with self._lock:
            said_at, repeated = self._said.get(thing, (now - QUIET_SECONDS, 0))
            if now - said_at < QUIET_SECONDS:
                self._said[thing] = said_at, repeated + 1
                return None
            if len(self._said) >= MOST_KINDS:
                self._said.clear()
            self._said[thing] = now, 0
            return repeated


_repetitions = Repetitions()


def limit(*families: str) -> None:
    """For every logger that is there by now under these names: filters are not handed down."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith(families)]
    for name in {*families, *names}:
        logging.getLogger(name).addFilter(_repetitions)
