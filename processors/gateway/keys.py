"""Idempotency keys as senders give them: usable text, told once, and unchanged to the last character."""

import re

from aiohttp import web

from schemas.errors import Refused

HEADER = "A44-Idempotency-Key"
MAX_LENGTH = 255

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def check_key(key: str) -> str:
    """The key. Raises Refused E_IDEMPOTENCY_KEY_INVALID."""
    if not key.strip():
        raise _invalid("it is empty or blank")
    if len(key) > MAX_LENGTH:
        raise _invalid(f"it has {len(key)} characters, at most {MAX_LENGTH} are kept")
    if _CONTROL.search(key):
        raise _invalid("it holds control characters")
    try:
        key.encode()
    except UnicodeEncodeError as exc:
        raise _invalid("it is not UTF-8 text") from exc
    return key


def key_in_header(request: web.BaseRequest) -> str | None:
    """The key of the header; None when none was sent. Raises Refused E_IDEMPOTENCY_KEY_INVALID."""
    told = request.headers.getall(HEADER, ())
    if not told:
        return None
    if len(told) > 1:
        raise _invalid(f"{len(told)} headers {HEADER} were sent, one is allowed")
    return check_key(told[0])


def _invalid(why: str) -> Refused:
    return Refused(
        "E_IDEMPOTENCY_KEY_INVALID",
        f"the idempotency key is not usable: {why}; derive it from what the event is about, "
        "for example invoice:inv_8812:finalized:v1",
    )
