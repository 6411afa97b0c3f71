"""A webhook signed on behalf of somebody who may not see its secret: the headers that its door will take."""

import hashlib
from datetime import datetime
from uuid import UUID

from processors.gateway.keys import HEADER, check_key
from processors.gateway.senders import OURS, SENDERS, Draft
from schemas.errors import Refused

MOST_TIMESTAMP_DIGITS = 15


def signed_headers(
    preset: str, secret: str, body: bytes, *, now: datetime, timestamp: str | None, key: str | None
) -> dict[str, str]:
    """As the preset's sender would send it. Without a key, the delivery's id follows from the body: to send it again is
    to repeat it. Raises Refused E_INVALID_PARAMETER, E_IDEMPOTENCY_KEY_INVALID.
    """
    sender = SENDERS[preset]
    if timestamp is not None and not _is_time(timestamp):
        raise _refused(f"timestamp is {timestamp[:40]!r}; expected Unix seconds, or leave it out")
    if timestamp is not None and sender.time_header is None:
        raise _refused(f"{preset} signs no time; leave the timestamp out")
    if key is not None and sender.id_in_body is not None:
        raise _refused(f"{preset} has the key in its body: set `{sender.id_in_body}` there, and leave the key out")
    moment = timestamp or str(int(now.timestamp()))
    made_up = str(UUID(bytes=hashlib.sha256(body).digest()[:16]))
    headers = sender.headers(secret, Draft(body, moment, made_up if key is None else check_key(key)))
    return {**headers, HEADER: key} if sender is OURS and key is not None else headers


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_TIMESTAMP_DIGITS


def _refused(message: str) -> Refused:
    return Refused("E_INVALID_PARAMETER", message)
