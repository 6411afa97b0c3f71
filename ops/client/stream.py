"""Server-sent events over a connection that may break: goes on after the last event that was seen.

The service sends a comment at least each 15 s, so silence of 45 s means a dead connection. A connection that
breaks is opened again, with growing pauses, until nothing new came for `_TRIES` openings.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ops.client.exchange import Exchange, Reply
from schemas.errors import AutomationError, Unavailable

_SILENCE = 45.0
_TRIES = 8
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LAST_EVENT = "end"
_ERROR_EVENT = "error"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """`data` is the event's text as sent; `id` is empty where it has none."""

    kind: str
    id: str
    data: str


class EventStream:
    """One stream from its first event to `end`."""

    def __init__(
        self,
        exchange: Exchange,
        path: str,
        headers: Mapping[str, str],
        refusal: Callable[[Reply], AutomationError],
        last_id: str = "",
    ) -> None:
        self._exchange = exchange
        self._path = path
        self._headers = dict(headers)
        self._refusal = refusal
        self._last_id = last_id

    def events(self, until: float | None) -> Iterator[StreamEvent]:
        """Each event once; stops after `end`, or without it when `until` (on `time.monotonic`) has come."""
        failures = 0
        while True:
            broke: Exception | None = None
            try:
                for event in self._connection_events(until):
                    failures = 0
                    yield event
                    if event.kind == _LAST_EVENT:
                        return
            except (Unavailable, OSError, http.client.HTTPException) as exc:
                broke = exc
            if until is not None and time.monotonic() >= until:
                return
            failures += 1
            if failures >= _TRIES:
                raise self._lost(broke) from broke
            time.sleep(_pause(failures, until))

    def _connection_events(self, until: float | None) -> Iterator[StreamEvent]:
        headers = self._headers | ({"Last-Event-ID": self._last_id} if self._last_id else {})
        connection, response = self._exchange.open(self._path, headers, _wait(until))
        try:
            if response.status != http.client.OK:
                raise self._refusal(Reply(response.status, response.read()))
            for event in parse(_lines(connection, response, until)):
                self._last_id = event.id or self._last_id
                yield event
        finally:
            connection.close()

    def _lost(self, broke: Exception | None) -> Unavailable:
        if isinstance(broke, Unavailable):
            return broke
        return Unavailable("E_UNAVAILABLE", f"{self._exchange.url} keeps closing the stream before its end")


def parse(lines: Iterable[str]) -> Iterator[StreamEvent]:
    """Events of a `text/event-stream`; one that was cut before its blank line is none.

    Raises `Unavailable` for an `error` event: the service cannot go on now.
    """
    kind, event_id = "", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data and kind == _ERROR_EVENT:
                raise _told("\n".join(data))
            if data:
                yield StreamEvent(kind or "message", event_id, "\n".join(data))
            kind, event_id, data = "", "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            event_id = value


def _told(text: str) -> Unavailable:
    try:
        document = json.loads(text)
        return Unavailable(str(document["code"]), str(document["detail"]), details={"status": 503})
    except (ValueError, KeyError, TypeError):
        return Unavailable("E_UNAVAILABLE", "the service ended the stream with an error", details={"status": 503})


def _lines(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float | None
) -> Iterator[str]:
    while line := response.readline():
        if until is not None and time.monotonic() >= until:
            return
        if connection.sock is not None:
            connection.sock.settimeout(_wait(until))
        yield line.decode("utf-8").rstrip("\r\n")


def _wait(until: float | None) -> float:
    return _SILENCE if until is None else min(_SILENCE, max(0.05, until - time.monotonic()))


def _pause(failures: int, until: float | None) -> float:
    pause = min(_FIRST_PAUSE * 2.0 ** (failures - 1), _LONGEST_PAUSE)
    return pause if until is None else min(pause, max(0.0, until - time.monotonic()))
