"""A project's events over HTTP: as pages, and live as server-sent events to whoever accepts those.

What an event holds is not told: its ids, its type and key where it made a run, and those runs. A page that a filter
thins out is short; `next` says whether there is more. A stream opens with `begin`, whose id is where it begins: whoever
is cut off goes on behind the last id.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aiohttp import web

from processors.gateway.fields import since_parameter, text_parameter, whole_parameter
from processors.gateway.log_stream import server_sent
from processors.gateway.parts import Parts, json_response
from processors.gateway.polling import SharedPoll
from processors.gateway.problems import REQUEST, REQUEST_ID
from processors.ports.taken_events import FreshEvents, Mark, SeenEvent, TakenEvents
from processors.ports.tokens import READ
from schemas.errors import Refused, Unavailable
from schemas.ids import event_millis

EVENTS_A_PAGE = 50
STREAM = "text/event-stream"
_EVENT_ID = re.compile(r"([0-9]{1,19}:[0-9]{1,19}:(?:[0-9]{1,19}(?:,[0-9]{1,19})*)?)\.(evt_[0-9A-Z]{26})")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Of which type an event has to be, and which trigger must have made a run of it."""

    type: str | None
    trigger_id: str | None

    def passes(self, event: SeenEvent) -> bool:
        return (self.type is None or event.type == self.type) and (
            self.trigger_id is None or any(run.trigger_id == self.trigger_id for run in event.runs)
        )


class EventTail:
    def __init__(self, parts: Parts, taken: TakenEvents) -> None:
        self._parts = parts
        self._taken = taken
        self.fresh: SharedPoll[Mark, FreshEvents] = SharedPoll(self._fresh)

    async def show(self, request: web.Request) -> web.StreamResponse:
        token = await self._parts.access.require(request, READ)
        wanted = EventFilter(text_parameter(request, "type"), text_parameter(request, "trigger"))
        since = since_parameter(request, "since", self._parts.door.now())
        if STREAM in request.headers.get("Accept", ""):
            return await self._stream(request, token.project_id, since, wanted)
        return await self._page(request, token.project_id, since, wanted)

    async def _page(
        self, request: web.Request, project_id: str, since: datetime | None, wanted: EventFilter
    ) -> web.Response:
        """One row more than the page is asked for: it tells whether there is a next page."""
        limit = whole_parameter(request, "limit", EVENTS_A_PAGE, self._parts.limits.page)
        after = text_parameter(request, "after")
        if after is not None and event_millis(after) is None:
            raise Refused("E_INVALID_PARAMETER", f"after={after[:40]} is no id of an event; expected `next` of a page")
        found = await self._taken.list_events(project_id, since=since, after=after, limit=limit + 1)
        page = found[:limit]
        return json_response(
            {
                "events": [event for event in page if wanted.passes(event)],
                "next": page[-1].event_id if len(found) > limit else None,
            }
        )

    async def _stream(
        self, request: web.Request, project_id: str, since: datetime | None, wanted: EventFilter
    ) -> web.StreamResponse:
        resumed = _mark_of(project_id, request.headers.get("Last-Event-ID"))
        mark = resumed or await self._taken.mark(project_id, since or self._parts.door.now())
        headers = {"Content-Type": STREAM, "Cache-Control": "no-store", REQUEST_ID: request[REQUEST]}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        try:
            if resumed is None:
                await response.write(server_sent("begin", {"project_id": project_id}, _id_of(mark)))
            while True:
                fresh = await self.fresh.wait(mark, self._parts.limits.ping)
                if fresh is None:
                    await response.write(b": ping\n\n")
                    continue
                await response.write(_told(mark, fresh, wanted))
                mark = fresh.mark
        except ConnectionError:
            return response  # the reader left
        except Unavailable as exc:  # the stream has begun: the reader resumes by the last id it has
            await response.write(server_sent("error", {"code": exc.code, "detail": exc.message}))
        await response.write_eof()
        return response

    async def _fresh(self, marks: Sequence[Mark]) -> dict[Mark, FreshEvents]:
        """Those marks behind which there is something new."""
        found = [(mark, await self._taken.fresh(mark)) for mark in marks]
        return {mark: fresh for mark, fresh in found if fresh.events}


def _told(mark: Mark, fresh: FreshEvents, wanted: EventFilter) -> bytes:
    """The last of them has the id from which to go on: what breaks before it is told again."""
    told = [event for event in fresh.events if wanted.passes(event)]
    marks = [*[mark] * (len(told) - 1), fresh.mark]
    return b"".join(server_sent("event", event, _id_of(at)) for event, at in zip(told, marks, strict=False))


def _id_of(mark: Mark) -> str:
    return f"{mark.snapshot}.{mark.event_id}"


def _mark_of(project_id: str, last_event_id: str | None) -> Mark | None:
    if not last_event_id:
        return None
    told = _EVENT_ID.fullmatch(last_event_id)
    if told is None or event_millis(told[2]) is None or not _is_snapshot(told[1]):
        raise Refused("E_INVALID_PARAMETER", f"Last-Event-ID {last_event_id[:60]!r} is none that this stream has sent")
    return Mark(project_id, told[1], told[2])


def _is_snapshot(text: str) -> bool:
    """Whether Postgres would take it for one: xmin:xmax:transactions between them, ascending."""
    xmin, xmax, between = text.split(":")
    inside = [int(one) for one in between.split(",")] if between else []
    ascending = [int(xmin), *inside, int(xmax)]
    return ascending[0] > 0 and ascending == sorted(ascending) and ascending[-1] < 2**63 and int(xmax) not in inside
