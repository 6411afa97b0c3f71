"""One connection of a caller: bounded in number and in time, and answered in our form whatever it sends."""

import asyncio

import structlog
from aiohttp import web

from processors.gateway.connections import Bound, Connections, Seat
from processors.gateway.problems import REQUEST_ID, defect, new_request_id, problem_response
from schemas.errors import Refused

SPARE_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class ProblemConnection(web.RequestHandler):
    """A connection whose unparsable requests are answered as all errors are, and whose headers come in time or not at
    all: one that begins a request and does not end its headers within `header_seconds` is closed. One that is past a
    bound has a second for its only request, from when it comes.
    """

    header_seconds = 10.0
    bounds: Connections | None = None
    past: Bound | None = None
    _seat: Seat | None = None
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.bounds is None:
            return
        self._seat = self.bounds.come(transport)
        self.past = self._seat.past
        if not self._seat.has_place:
            self.force_close()
        elif self.past is not None:
            self._late = asyncio.get_running_loop().call_later(SPARE_SECONDS, self.force_close)

    def data_received(self, data: bytes) -> None:
        """Called by aiohttp for all that comes."""
        super().data_received(data)
        if not data:
            return  # what was held back is parsed again
        if self._current_request is not None or self._messages:  # the headers are here; bodies have times of their own
            self._be_patient()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(self.header_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._be_patient()
        if self._seat is not None and self.bounds is not None:
            self.bounds.go(self._seat)
            self._seat = None
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp where no handler of ours could be."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun when the request broke")
        request_id = new_request_id()
        if status >= web.HTTPInternalServerError.status_code:
            _log.error("connection_failed", request_id=request_id, exc_info=exc)
            response = problem_response(defect(request_id), request_id)
        else:
            why = (message or "it is no HTTP request").strip().splitlines()[0][:200]
            refused = Refused("E_INVALID_PARAMETER", f"the request cannot be read: {why}")
            response = problem_response(refused, request_id, status=status)
        response.headers[REQUEST_ID] = request_id
        response.force_close()
        return response
