"""A run's log as server-sent events: each record once, in order, resumable where the reader stopped.

`event: record` has the id `<generation>.<seq>`; `event: end` closes the stream and says in which state.
"""

import re

import msgspec
from aiohttp import web

from processors.engine.moves import TERMINAL
from processors.gateway.documents import attempt_document, find_run
from processors.gateway.fields import flag_parameter
from processors.gateway.parts import ACCEPTED, Parts
from processors.gateway.problems import REQUEST, REQUEST_ID
from processors.ports.run_queries import Attempt, Cursor, News
from processors.ports.tokens import READ
from schemas.errors import Refused, Unavailable

_EVENT_ID = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")
_LINE_END = re.compile(rb"\r\n|\r|\n")


class RunLog:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def stream(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, READ)
        run_id = request.match_info["run"]
        cursor = _cursor(run_id, request.headers.get("Last-Event-ID"))
        follow = flag_parameter(request, "follow", default=True)
        await find_run(parts, token.project_id, run_id)
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                REQUEST_ID: request[REQUEST],
            }
        )
        await response.prepare(request)
        try:
            state = await self._send(response, cursor, follow=follow)
            await response.write(server_sent("end", {"run_id": run_id, "state": state, "ended": state in TERMINAL}))
        except ConnectionError:
            return response  # the reader left
        except Unavailable as exc:  # the stream has begun: the reader resumes by the last id it has
            await response.write(server_sent("error", {"code": exc.code, "detail": exc.message}))
        await response.write_eof()
        return response

    async def _send(self, response: web.StreamResponse, cursor: Cursor, *, follow: bool) -> str:
        """Write records until the run has ended or, not following, until all were told. Answers its state."""
        while True:
            news = await self._next(cursor, follow=follow)
            if news is None and follow:
                await response.write(b": ping\n\n")
                continue
            if news is None or not news.records:
                ended = None if news is None else news.ended
                return ended or await self._parts.states.get(cursor.run_id) or ACCEPTED
            await response.write(b"".join(_record(attempt) for attempt in news.records))
            last = news.records[-1]
            cursor = Cursor(cursor.run_id, last.generation, last.seq)

    async def _next(self, cursor: Cursor, *, follow: bool) -> News | None:
        if follow:
            return await self._parts.news.wait(cursor, self._parts.limits.ping)
        return (await self._parts.queries.news([cursor])).get(cursor)


def _cursor(run_id: str, last_event_id: str | None) -> Cursor:
    if not last_event_id:
        return Cursor(run_id)
    told = _EVENT_ID.fullmatch(last_event_id)
    if told is None:
        raise Refused("E_INVALID_PARAMETER", f"Last-Event-ID {last_event_id[:40]!r} is not of the form 1.17")
    return Cursor(run_id, int(told[1]), int(told[2]))


def _record(attempt: Attempt) -> bytes:
    return server_sent("record", attempt_document(attempt), f"{attempt.generation}.{attempt.seq}")


def server_sent(name: str, document: object, event_id: str | None = None) -> bytes:
    """One event. Line ends between JSON tokens would end the field: each line becomes a field of its own."""
    data = _LINE_END.sub(b"\ndata: ", msgspec.json.encode(document))
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"
