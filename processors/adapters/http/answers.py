"""What an upstream's answer means for the attempt: a result, another try, or the end.

An answer's body becomes the result or is thrown away: no error repeats any of it.
"""

import codecs
from collections.abc import Collection
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from aiohttp import ClientError, ClientResponse, hdrs

from processors.ports.actions import StepFailure
from schemas import strict_json
from schemas.errors import UPSTREAM_PREFIX, Refused
from schemas.records import ErrorInfo
from schemas.results import RESULT_BYTES, too_large

MAX_RETRY_AFTER = 86_400.0
FIRST_SUCCESS, FIRST_REDIRECT, FIRST_ERROR = 200, 300, 400

_CHUNK = 64 * 1024
_CHARSETS = frozenset({"utf-8", "utf-8-sig", "ascii", "iso8859-1", "iso8859-15", "cp1252", "utf-16"})
_MAX_SECONDS_DIGITS = 9


async def read_answer(response: ClientResponse, what: str, retry_on: Collection[int]) -> str:
    """The result as JSON text, not yet checked. Raises StepFailure for a status that is no success."""
    status = response.status
    if status < FIRST_SUCCESS:  # another protocol follows, which is nobody's to read
        response.close()
        raise StepFailure(_status_error(response, what, "not read", is_retryable=status in retry_on))
    if status >= FIRST_REDIRECT:
        size = await _discard(response)
        raise StepFailure(_status_error(response, what, size, is_retryable=status in retry_on))
    return _text_of(response, await _read(response, what), what)


def retry_after(value: str | None, date: str | None, now: datetime) -> float | None:
    """Seconds to wait by a `Retry-After` header, RFC 9110 10.2.3: seconds, or a date against the answer's
    own `Date` (`now` where it has none). A past date is now; what cannot be read is None.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text) if len(text) <= _MAX_SECONDS_DIGITS else MAX_RETRY_AFTER
        return min(seconds, MAX_RETRY_AFTER)
    until = _read_date(text)
    if until is None:
        return None
    sent = (_read_date(date) if date is not None else None) or now
    return min(max((until - sent).total_seconds(), 0.0), MAX_RETRY_AFTER)


def _status_error(response: ClientResponse, what: str, size: str, *, is_retryable: bool) -> ErrorInfo:
    status = response.status
    message = f"{what} was answered with {status} ({size})"
    if FIRST_REDIRECT <= status < FIRST_ERROR:
        message += "; redirects are not followed: put the final address into baseUrl and path"
    wait = None
    if is_retryable:
        headers = response.headers
        wait = retry_after(headers.get(hdrs.RETRY_AFTER), headers.get(hdrs.DATE), datetime.now(UTC))
    return ErrorInfo(f"{UPSTREAM_PREFIX}{status}", "UpstreamStatus", message, retryable=is_retryable, retry_after=wait)


async def _read(response: ClientResponse, what: str) -> bytes:
    if (response.content_length or 0) > RESULT_BYTES:
        raise too_large(what, f"{response.content_length} bytes", RESULT_BYTES)
    found = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        found += chunk
        if len(found) > RESULT_BYTES:
            raise too_large(what, f"over {RESULT_BYTES} bytes", RESULT_BYTES)
    return bytes(found)


async def _discard(response: ClientResponse) -> str:
    """Read a small body to its end, so that the connection can serve again; answer its size in words."""
    size = 0
    try:
        async for chunk in response.content.iter_chunked(_CHUNK):
            size += len(chunk)
            if size > RESULT_BYTES:
                response.close()
                return f"over {RESULT_BYTES} bytes"
    except ClientError:  # the status alone decides; only the size stays unknown
        return "its body broke off"
    return f"{size} bytes"


def _text_of(response: ClientResponse, data: bytes, what: str) -> str:
    """JSON as it came, any other text as a JSON string, nothing as null."""
    if not data:
        return "null"
    # The header itself: without one, the library claims application/octet-stream.
    declared = response.headers.get(hdrs.CONTENT_TYPE)
    kind = response.content_type
    is_json = declared is not None and (kind in {"application/json", "text/json"} or kind.endswith("+json"))
    text = _decoded(data, response.charset, what)
    if is_json:
        return text
    try:
        return strict_json.encode(text)
    except Refused as exc:
        raise Refused("E_RESULT_NOT_JSON", f"{what} was answered with text that holds {_UNSTORABLE}") from exc


_UNSTORABLE = "NUL characters, which cannot be recorded"


def _decoded(data: bytes, charset: str | None, what: str) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name
    except LookupError:
        name = ""
    if name not in _CHARSETS:
        raise Refused("E_RESULT_NOT_JSON", f"{what} was answered in a character set that is not supported; UTF-8 is")
    try:
        return data.decode("utf-8-sig" if name == "utf-8" else name)
    except UnicodeDecodeError as exc:
        raise Refused(
            "E_RESULT_NOT_JSON",
            f"{what} was answered with {len(data)} bytes that are no {name} text; a result is JSON or text",
        ) from exc


def _read_date(text: str) -> datetime | None:
    """An HTTP date in any of its three forms, RFC 9110 5.6.7; all of them are in UTC."""
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
