"""Results as a host reports them, checked before they may reach a record: valid JSON text, and storable.

The SDK has checked them already; the author's code shares its process and could have written anything.
"""

import msgspec

from processors.engine.requests import BodyEnd, BodyStatus
from processors.executor.hosts.messages import Ended, error_of
from schemas import strict_json
from schemas.errors import Refused
from schemas.records import ErrorInfo

_scan = msgspec.json.Decoder(msgspec.Raw).decode


def value_problem(text: str) -> ErrorInfo | None:
    """None for text that is one JSON value and can be stored."""
    try:
        _scan(text)
        if "\\u" in text:  # the only way to write NUL or half a pair, and slow to tell apart
            strict_json.check(text.encode())
    except (msgspec.DecodeError, RecursionError, Refused) as exc:
        return ErrorInfo(
            "E_RESULT_NOT_JSON", "ResultNotJson", f"the host sent a result that is no JSON: {exc}", retryable=False
        )
    return None


def checked_end(ended: Ended | None) -> BodyEnd | None:
    if ended is None:
        return None
    problem = value_problem(ended.value) if ended.value is not None else None
    if problem is not None:
        return BodyEnd(BodyStatus.FAILED, None, problem)
    error = error_of(ended.error) if ended.error is not None else None
    return BodyEnd(BodyStatus(ended.status), ended.value, error)
