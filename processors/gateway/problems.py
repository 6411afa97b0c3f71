"""Every error is answered as `application/problem+json` with a stable code, whoever raised it.

That holds for our own refusals, for the router's 404 and 405, for requests that cannot even be parsed,
and for defects, which are logged under the request id and tell the caller nothing but that id.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from secrets import token_hex
from typing import Any

import msgspec
import structlog
from aiohttp import web

from processors.gateway.callers import CALLER
from schemas.errors import AutomationError, Broken, Refused, Unavailable, code_of

REQUEST_ID = "A44-Request-Id"
REQUEST = web.RequestKey("request_id", str)
PROBLEM = "application/problem+json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = structlog.get_logger(__name__)
_process = token_hex(4)
_numbers = count(1)
_COME_AGAIN = frozenset({web.HTTPTooManyRequests.status_code, web.HTTPServiceUnavailable.status_code})
_OWN_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "request_id", "place"})


def new_request_id() -> str:
    return f"req_{_process}{next(_numbers):08x}"


def problem_response(
    error: AutomationError, request_id: str, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The answer that tells an error. `status` stands in where HTTP knows better than the code's table."""
    document = _document(error, request_id, status)
    return web.Response(
        body=_encoded(document),
        status=document["status"],
        content_type=PROBLEM,
        headers={**_hints(document["status"], error), **(headers or {})},
    )


def problem_of(error: AutomationError, request_id: str) -> dict[str, Any]:
    """The document that tells an error as a part of an answer; nothing in it but what callers may see."""
    document: dict[str, Any] = msgspec.json.decode(_encoded(_document(_outward(error, request_id), request_id)))
    return document


def _document(error: AutomationError, request_id: str, status: int | None = None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": f"/errors/{error.code}",
        "title": code_of(error.code).title,
        "status": status or error.status,
        "detail": error.message,
        "code": error.code,
        "request_id": request_id,
    }
    if error.place is not None:
        document["place"] = error.place
    return document | {name: value for name, value in error.details.items() if name not in _OWN_MEMBERS}


def _encoded(document: Mapping[str, Any]) -> bytes:
    """What a caller sent may stand in the text: bytes that were no UTF-8 are told as escapes."""
    try:
        return msgspec.json.encode(document, enc_hook=str)
    except UnicodeEncodeError:
        return json.dumps(document, default=str).encode()


def _hints(status: int, error: AutomationError) -> dict[str, str]:
    if status in _COME_AGAIN:
        return {"Retry-After": str(error.details.get("retry_after", 1))}
    if error.code == "E_TOKEN":
        return {"WWW-Authenticate": "Bearer"}
    return {}


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost layer of the application."""
    request_id = new_request_id()
    request[REQUEST] = request_id
    try:
        response = await handler(request)
    except AutomationError as error:
        response = problem_response(_outward(error, request_id, request.get(CALLER)), request_id)
    except web.HTTPException as exc:
        response = _from_http(exc, request, request_id)
    except ConnectionError:
        raise  # the caller is gone: there is nobody to answer
    except Exception:  # noqa: BLE001 - a defect is logged and answered, with nothing of it told
        _log.exception("request_failed", request_id=request_id, method=request.method, caller=request.get(CALLER))
        response = problem_response(defect(request_id), request_id)
    if not response.prepared:
        response.headers[REQUEST_ID] = request_id
    return response


def _outward(error: AutomationError, request_id: str, caller: str | None = None) -> AutomationError:
    """What a driver says of its troubles names addresses and statements: that is for our log, not for callers."""
    if isinstance(error, Broken):
        _log.error("request_broken", request_id=request_id, caller=caller, exc_info=error)
        return defect(request_id)
    if error.code == "E_UNAVAILABLE" and error.__cause__ is not None:
        _log.warning("request_unavailable", request_id=request_id, caller=caller, reason=error.message)
        return Unavailable(error.code, "Postgres does not answer now; send it again with the same key")
    return error


def _from_http(exc: web.HTTPException, request: web.Request, request_id: str) -> web.Response:
    """The router's and the server's own answers in our form."""
    if isinstance(exc, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(exc.allowed_methods))
        refused = Refused("E_METHOD_NOT_ALLOWED", f"{request.method} is not allowed here; allowed: {allowed}")
        return problem_response(refused, request_id, headers={"Allow": allowed})
    if exc.status == web.HTTPNotFound.status_code:
        return problem_response(Refused("E_NOT_FOUND", f"there is nothing at {request.path[:200]}"), request_id)
    if exc.status >= web.HTTPInternalServerError.status_code:
        _log.error("request_failed", request_id=request_id, error=exc.reason)
        return problem_response(defect(request_id), request_id)
    return problem_response(Refused("E_INVALID_PARAMETER", exc.reason), request_id, status=exc.status)


def defect(request_id: str) -> Broken:
    return Broken("E_INTERNAL", f"something broke on our side; it is logged as {request_id}")
