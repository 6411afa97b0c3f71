"""One call in several tries: what is tried again, after which pause, and when it is given up.

Every call here is safe to repeat, since each carries a key or changes nothing the second time. The body is the same
bytes in every try; what proves its sender is made for each.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from anthares44.automation.client.errors import ServiceError, ServiceRefused, ServiceUnavailable
from anthares44.automation.client.exchange import Call, Pause, Reply, Request, Unreached

_SUCCESS = range(200, 300)
_TRIED_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_SERVER_FAULT = 500
_NOT_FOUND = 404
_TOO_MANY = 429
_SKEW = "E_TIMESTAMP_SKEW"


@dataclass(frozen=True, slots=True)
class Retries:
    """`tries` in all. The pause after the n-th is drawn from 0 to `base * 2^(n-1)` seconds, `cap` at most, and is never
    shorter than the service's Retry-After. No try starts later than `patience` seconds after the first.
    """

    tries: int = 5
    base: float = 0.2
    cap: float = 10.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.base, self.cap, self.patience) < 0:
            raise ServiceRefused("E_CONFIG", f"{self}: expected at least one try, and no seconds below 0")

    def pause(self, tried: int) -> float:
        """Seconds after so many tries."""
        most = min(self.cap, self.base * 2.0 ** min(tried - 1, 60))
        return random.uniform(0, most)  # noqa: S311  spreads callers, hides nothing


def persist(make: Callable[[], Request], retries: Retries, address: object) -> Call[Reply]:
    """A successful reply. Raises ServiceRefused for what no repeat can help, ServiceUnavailable when it is given up."""
    started = time.monotonic()
    tried = 0
    while True:
        answer = yield make()
        tried += 1
        if isinstance(answer, Reply) and answer.status in _SUCCESS:
            return answer
        error = _error(answer, address)
        if isinstance(answer, Reply) and answer.status not in _TRIED_AGAIN:
            raise error
        asked = getattr(error, "retry_after", None) or 0.0
        pause = max(retries.pause(tried), asked)
        if tried >= retries.tries or time.monotonic() - started + pause > retries.patience:
            raise error from (answer.cause if isinstance(answer, Unreached) else None)
        yield Pause(pause)


def _error(answer: Reply | Unreached | None, address: object) -> ServiceError:
    """The error that an answer stands for: its problem document, or what its status says."""
    if not isinstance(answer, Reply):
        reason = answer.reason if answer else "gave no answer"
        return ServiceUnavailable(
            "E_UNAVAILABLE",
            f"{address} {reason}; is the gateway up, and is this its address? call again with the same key",
        )
    problem = _problem(answer) or _without_problem(answer.status, address)
    message = str(problem.get("detail") or problem.get("title") or "the service gave no reason")
    details = {name: value for name, value in problem.items() if name not in ("code", "detail")}
    code = problem["code"]
    if (
        answer.status == _TOO_MANY
        or answer.status >= _SERVER_FAULT
        or (answer.status in _TRIED_AGAIN and code != _SKEW)
    ):
        wait = _retry_after(answer.headers.get("retry-after"))
        return ServiceUnavailable(code, message, status=answer.status, details=details, retry_after=wait)
    return ServiceRefused(code, message, status=answer.status, details=details)


def _problem(reply: Reply) -> dict[str, Any] | None:
    try:
        document = json.loads(reply.body)
    except ValueError:
        return None
    return document if isinstance(document, dict) and isinstance(document.get("code"), str) else None


def _without_problem(status: int, address: object) -> dict[str, Any]:
    """What a status says by itself; the codes are those of the command line for the same answers."""
    code = "E_NOT_FOUND" if status == _NOT_FOUND else "E_INVALID_PARAMETER"
    if status in _TRIED_AGAIN or status >= _SERVER_FAULT:
        code = "E_UNAVAILABLE"
    return {
        "code": code,
        "detail": f"{address} answered {status}, not as the automation service does: is this its address?",
    }


def _retry_after(told: str | None) -> float | None:
    """Seconds, or a date of HTTP; None for what is neither."""
    if told is None:
        return None
    try:
        if told.strip().isdigit():
            return float(told)
        at = parsedate_to_datetime(told)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo else None
