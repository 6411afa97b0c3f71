"""Request bodies, as the bytes that came: counted while reading, within a time, never decompressed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import ClientError, HttpVersion11, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from processors.gateway.budget import Budget, Share
from schemas.errors import Refused

JSON = "application/json"
BUDGET = web.AppKey("budget", Budget)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SHARE = web.RequestKey("share", Share)


def require_json(request: web.BaseRequest) -> None:
    """Raises Refused E_UNSUPPORTED_MEDIA_TYPE."""
    require_media(request, (JSON,))


def require_media(request: web.BaseRequest, wanted: Sequence[str]) -> str:
    """Which of these content types the body has, plain and in UTF-8. Raises Refused E_UNSUPPORTED_MEDIA_TYPE."""
    told = request.headers.get("Content-Type", "")
    media = told if told in wanted else _media(told)
    if media not in wanted:
        raise Refused(
            "E_UNSUPPORTED_MEDIA_TYPE",
            f"the content type is {told[:80]!r}; send `Content-Type: {wanted[0]}`, in UTF-8"
            + (f"; also taken: {', '.join(wanted[1:])}" if len(wanted) > 1 else ""),
        )
    refuse_encoded(request)
    return media


def refuse_encoded(request: web.BaseRequest) -> None:
    """Raises Refused E_UNSUPPORTED_MEDIA_TYPE for a body that is compressed."""
    encoding = request.headers.get("Content-Encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise Refused("E_UNSUPPORTED_MEDIA_TYPE", f"the content encoding is {encoding[:40]!r}; send the body plain")


def _media(content_type: str) -> str:
    """The type without its parameters; nothing for text in another charset."""
    media, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [part.partition("=")[2].strip('" ') for part in parameters if part.startswith("charset")]
    return media if all(charset in ("utf-8", "utf8") for charset in charsets) else ""


async def answer_expectation(request: web.Request) -> None:
    """Ask a sender that waits for leave to go on; any other expectation is passed over, as HTTP allows.

    The router answers unknown ones in its own form, before any handler of ours.
    """
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


async def read_body(request: web.Request, limit: int, seconds: float) -> bytes:
    """The whole body, counted in the budget of this process until the request is answered.

    Raises Refused E_BODY_TOO_LARGE past `limit` bytes, E_BODY_TIMEOUT past `seconds`, `Unavailable` E_OVERLOADED.
    """
    announced = request.content_length
    if announced is not None and announced > limit:
        raise _too_large(limit)
    content = request.content
    share = request[SHARE] = request.app[BUDGET].share()
    try:
        if content.is_eof():  # all of it came with the headers: no timer is needed
            return _within(limit, share, content.read_nowait(-1))
        async with asyncio.timeout(seconds):
            return await _read_counting(content, limit, share)
    except TimeoutError as exc:
        raise Refused(
            "E_BODY_TIMEOUT", f"the body had not arrived after {seconds:g} s; send the request again"
        ) from exc
    except (ClientError, RequestPayloadError, HttpProcessingError) as exc:
        raise Refused("E_INVALID_PARAMETER", "the body broke off or was framed wrongly; send it again") from exc


@web.middleware
async def give_back(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What a request held of the budget is free once it is answered, whatever the answer."""
    try:
        return await handler(request)
    finally:
        share = request.get(SHARE)
        if share is not None:
            share.give_back()


async def _read_counting(content: StreamReader, limit: int, share: Share) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await content.readany():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        share.take(len(part))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _within(limit: int, share: Share, body: bytes) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    share.take(len(body))
    return body


def _too_large(limit: int) -> Refused:
    return Refused("E_BODY_TOO_LARGE", f"the body is larger than {limit} bytes; send a reference to large data instead")
