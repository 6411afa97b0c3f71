"""What a record on a retry topic says of itself: why it waits, until when, and the record that it was at first.

The value is the first record's, byte for byte. All else that it had is in headers: the relay publishes text, so its key
and its headers, which may be any bytes, stand there in base64.
"""

import base64
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from schemas.errors import Refused
from schemas.framing import Headers

CODE: Final = "a44-retry-code"
DUE: Final = "a44-retry-due"
TRIES: Final = "a44-retry-tries"
_TOPIC: Final = "a44-source-topic"
_PARTITION: Final = "a44-source-partition"
_OFFSET: Final = "a44-source-offset"
_TIMESTAMP: Final = "a44-source-timestamp-ms"
_RELAYED: Final = "a44-source-relayed"
_KEY: Final = "a44-source-key"
_HEADERS: Final = "a44-source-headers"
_MOST: Final = 2**63 - 1
_MOST_PARTITION: Final = 2**31 - 1
_read_headers: Final = msgspec.json.Decoder(list[tuple[str, bytes | None]])


class RetryLetter(msgspec.Struct, frozen=True, kw_only=True):
    """`tries` counts how often the record was put off, this time included. `is_relayed`: it came by the relay."""

    code: str
    due: datetime
    tries: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    is_relayed: bool
    key: bytes | None
    headers: Headers


def headers_text(letter: RetryLetter) -> str:
    """The headers as a JSON object of text."""
    return msgspec.json.encode(_told(letter)).decode()


def routing_key(letter: RetryLetter) -> str:
    """The first record's key where it is text; else its place, which spreads as well."""
    try:
        text = "" if letter.key is None else letter.key.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text and "\0" not in text else f"{letter.topic}/{letter.partition}/{letter.offset}"


def _told(letter: RetryLetter) -> dict[str, str]:
    told = {
        CODE: letter.code,
        DUE: letter.due.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        TRIES: str(letter.tries),
        _TOPIC: letter.topic,
        _PARTITION: str(letter.partition),
        _OFFSET: str(letter.offset),
        _TIMESTAMP: str(letter.timestamp_ms),
        _RELAYED: "true" if letter.is_relayed else "false",
        _HEADERS: msgspec.json.encode(letter.headers).decode(),
    }
    return told if letter.key is None else {**told, _KEY: base64.b64encode(letter.key).decode()}


def read_letter(headers: Headers) -> RetryLetter:
    """Raises Refused E_ENVELOPE_INVALID: who put the record there was not ingest."""
    told: dict[str, str] = {}
    for name, value in headers:
        if value is not None:
            told.setdefault(name, value.decode("utf-8", "replace"))
    return RetryLetter(
        code=_text(told, CODE),
        due=_moment(told),
        tries=max(_number(told, TRIES), 1),
        topic=_text(told, _TOPIC),
        partition=_number(told, _PARTITION, _MOST_PARTITION),
        offset=_number(told, _OFFSET),
        timestamp_ms=_number(told, _TIMESTAMP),
        is_relayed=_text(told, _RELAYED) == "true",
        key=_key(told),
        headers=_headers(told),
    )


def _text(told: dict[str, str], name: str) -> str:
    text = told.get(name) or _refuse(name, "is missing")
    return text if "\0" not in text else _refuse(name, "holds a NUL")


def _number(told: dict[str, str], name: str, most: int = _MOST) -> int:
    """Kafka tells of a record without a time by -1."""
    text = _text(told, name)
    digits = text.removeprefix("-") if name == _TIMESTAMP else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(most)) and int(digits) <= most):
        _refuse(name, f"is no number up to {most}")
    return int(text)


def _moment(told: dict[str, str]) -> datetime:
    try:
        due = datetime.fromisoformat(_text(told, DUE))
    except ValueError as exc:
        _refuse(DUE, "is no time", exc)
    return due if due.tzinfo is not None else _refuse(DUE, "has no offset")


def _key(told: dict[str, str]) -> bytes | None:
    try:
        return base64.b64decode(told[_KEY], validate=True) if _KEY in told else None
    except ValueError as exc:
        _refuse(_KEY, "is no base64", exc)


def _headers(told: dict[str, str]) -> Headers:
    try:
        return tuple(_read_headers.decode(_text(told, _HEADERS)))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        _refuse(_HEADERS, "are no list of names and base64", exc)


def _refuse(name: str, fault: str, cause: Exception | None = None) -> NoReturn:
    message = f"the header {name} {fault}; retry topics hold what ingest has put off, and nothing else: send events"
    raise Refused("E_ENVELOPE_INVALID", f"{message} to the events topic") from cause
