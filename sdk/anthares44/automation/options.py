"""Checks of what authors declare at a step: id, timeout, retry; and its defaults.

A declaration that cannot be used raises DeclarationError with the code that blocks the run: the code is
at fault, and the run stays blocked.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypedDict

from anthares44.automation.durations import Duration, seconds_of

LONGEST_ID = 128
MOST_TRIES = 1_000_000
STRATEGIES = ("exponential-jitter",)


class Retry(TypedDict, total=False):
    """`max` counts attempts in all; `base` and `cap` are durations."""

    max: int
    strategy: str
    base: Duration
    cap: Duration


DEFAULT_RETRY: dict[str, Any] = {"max": 3, "strategy": "exponential-jitter", "base": 1.0, "cap": 300.0}


class DeclarationError(Exception):
    def __init__(self, message: str, code: str = "E_SPEC_INVALID") -> None:
        super().__init__(message)
        self.code = code


def check_id(item: object) -> str:
    """The id, when it is printable text of 1 to 128 characters that does not start with `~`. What is more than text, a
    member of an enumeration for one, may be shown in other letters than those it is known by: its text alone is kept.
    """
    if type(item) is str:
        return _check_id_text(item)
    if not isinstance(item, str):
        raise DeclarationError(f"a step's id must be text, not {type(item).__name__}")
    return _check_id_text(str.__str__(item))


@lru_cache(maxsize=4096)
def _check_id_text(item: str) -> str:
    if not 0 < len(item) <= LONGEST_ID or not item.isprintable() or item.isspace():
        raise DeclarationError(f"the step id {item[:LONGEST_ID]!r} must be 1 to {LONGEST_ID} printable characters")
    if item[0] == "~":
        raise DeclarationError(f"the step id {item!r} starts with ~, which is kept for the platform's own items")
    return item


def check_timeout(item: str, timeout: Duration | None) -> float:
    if timeout is None:
        message = f'the step {item!r} declares no timeout; add one, such as timeout="30s"'
        raise DeclarationError(message, "E_STEP_TIMEOUT_MISSING")
    seconds = _duration("the timeout of step", item, timeout)
    if seconds <= 0:
        raise DeclarationError(f"the timeout of step {item!r} must be above 0")
    return seconds


def check_deadline(deadline: Duration | None) -> None:
    if deadline is not None and _duration("the deadline", None, deadline) <= 0:
        raise DeclarationError("the deadline must be above 0")


def check_sleep(item: str, duration: Duration) -> float:
    return _duration("the duration of sleep", item, duration)


def check_retry(item: str, retry: Mapping[str, Any] | None) -> dict[str, Any]:
    """All four fields, defaults filled in, base and cap in seconds. Not to be changed by the caller."""
    if retry is None:
        return DEFAULT_RETRY
    if not isinstance(retry, Mapping):
        raise DeclarationError(f"retry of step {item!r} must be a mapping, not {type(retry).__name__}")
    unknown = sorted(str(key) for key in retry if key not in DEFAULT_RETRY)
    if unknown:
        raise DeclarationError(
            f"retry of step {item!r} has unknown fields {', '.join(unknown)}; known are max, strategy, base, cap",
        )
    full = {**DEFAULT_RETRY, **retry}
    most = full["max"]
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_TRIES:
        message = f"retry.max of step {item!r} must be an integer of at least 1 and at most {MOST_TRIES}, not {most!r}"
        raise DeclarationError(message)
    if full["strategy"] not in STRATEGIES:
        raise DeclarationError(
            f"retry.strategy of step {item!r} is {full['strategy']!r}; known is {', '.join(STRATEGIES)}",
        )
    for name in ("base", "cap"):
        full[name] = _duration(f"retry.{name} of step", item, full[name])
    return full


def check_function(item: str, name: str, function: object) -> None:
    if not callable(function):
        raise DeclarationError(
            f"{name} of step {item!r} must be a function, not {type(function).__name__}; "
            f"write {name}=lambda: ... so that it is called only when it is due",
        )


def check_concurrency(concurrency: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`{"max": 5, "partition_key": "..."}`: at most `max` runs at a time, one a key where one is named."""
    if concurrency is None:
        return None
    unknown = sorted(str(key) for key in concurrency if key not in ("max", "partition_key"))
    if unknown:
        raise DeclarationError(f"concurrency has unknown fields {', '.join(unknown)}; known are max, partition_key")
    most, key = concurrency.get("max"), concurrency.get("partition_key")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise DeclarationError(f"concurrency.max must be an integer of at least 1, not {most!r}")
    if key is not None and (not isinstance(key, str) or not key.strip()):
        raise DeclarationError("concurrency.partition_key must be an expression in text")
    return dict(concurrency)


def _duration(what: str, item: str | None, duration: Duration) -> float:
    try:
        return seconds_of(duration)
    except (ValueError, TypeError) as error:  # a list, say, cannot even be looked up
        whose = what if item is None else f"{what} {item!r}"
        raise DeclarationError(f"{whose}: {error}") from None
