"""Lengths of time as users write them: `250ms`, `15s`, `5m`, `2h`, `1d`, or a number of seconds."""

import re

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
EXAMPLES = "`250ms`, `15s`, `5m`, `2h`, `1d` or a number of seconds"

_TEXT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")


def parse_seconds(value: object) -> float:
    """The length in seconds, above 0. Raises ValueError with what was seen and what is expected."""
    seconds: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < 10**12 else None
    elif isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match:
            seconds = float(match[1]) * UNITS[match[2]]
    if seconds is None:
        raise ValueError(f"`{str(value)[:40]}` is not a length of time; write {EXAMPLES}")
    if seconds <= 0:
        raise ValueError(f"a length of time must be above 0, not `{value}`")
    return seconds
