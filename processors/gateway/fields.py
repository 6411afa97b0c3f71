"""JSON bodies as typed fields, and parameters of the query as values; what does not fit is refused by name."""

import re
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
from aiohttp import web

from schemas import strict_json
from schemas.errors import Refused
from topology.names import hint

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_SPAN = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_fields(body: bytes, shape: type[T]) -> T:
    """One JSON object. Raises Refused: what strict JSON refuses, and E_INVALID_PARAMETER naming the field."""
    strict_json.check(body)
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as exc:
        raise Refused("E_INVALID_PARAMETER", f"the body does not fit: {exc}{_known(str(exc), shape)}") from exc


def _known(found: str, shape: type[msgspec.Struct]) -> str:
    """What may have been meant by a field of the body that is not known."""
    unknown = _UNKNOWN.fullmatch(found)
    return "" if unknown is None else hint(unknown[1], [one.encode_name for one in msgspec.structs.fields(shape)])


def text_parameter(request: web.Request, name: str) -> str | None:
    """A parameter of the query that was given and is not empty."""
    told = request.query.getall(name, [])
    if len(told) > 1:
        raise Refused("E_INVALID_PARAMETER", f"the parameter {name} was given {len(told)} times")
    text = told[0] if told else ""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise Refused("E_INVALID_PARAMETER", f"the parameter {name} holds text that cannot be stored")
    return text or None


def whole_parameter(request: web.Request, name: str, default: int, most: int) -> int:
    """A whole number from 1; more than `most` is taken as `most`."""
    text = text_parameter(request, name)
    if text is None:
        return default
    if re.fullmatch(r"0{0,9}[1-9][0-9]{0,8}", text) is None:
        raise Refused("E_INVALID_PARAMETER", f"{name}={text[:40]} is not a whole number from 1")
    return min(int(text), most)


def flag_parameter(request: web.Request, name: str, *, default: bool) -> bool:
    text = text_parameter(request, name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise Refused("E_INVALID_PARAMETER", f"{name}={text[:40]} is neither true nor false")
    return text == "true"


def seconds_parameter(request: web.Request, name: str, most: float) -> float:
    """Seconds from 0; more than `most` is taken as `most`. Not given: 0."""
    text = text_parameter(request, name)
    if text is None:
        return 0.0
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) is None:
        raise Refused(
            "E_INVALID_PARAMETER",
            f"{name}={text[:40]} is not a number of seconds, such as {name}=30; {most:g} at most are waited",
        )
    return min(float(text), most)


def since_parameter(request: web.Request, name: str, now: datetime) -> datetime | None:
    """A span back from now (`90s`, `15m`, `48h`, `7d`) or a moment (ISO 8601; without an offset it is UTC)."""
    text = text_parameter(request, name)
    if text is None:
        return None
    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # an unescaped + of an offset reads as a space
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as exc:
        raise Refused(
            "E_INVALID_PARAMETER", f"{name}={text[:40]} is neither a span such as 48h nor a moment in ISO 8601"
        ) from exc
