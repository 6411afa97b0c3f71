"""Durations as authors write them: "250ms", "10s", "5m", "2h", "1d", or a number of seconds.

The result is always seconds as a float, rounded to the microsecond, so that the same text gives the
same number on every machine.
"""

import math
import re
from functools import lru_cache

Duration = str | float

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
LONGEST = 10 * 366 * 86400.0


@lru_cache(maxsize=1024, typed=True)
def seconds_of(duration: Duration) -> float:
    """Seconds of a duration. Raises ValueError when it cannot be read, is negative or over ten years."""
    if isinstance(duration, str):
        match = _FORM.fullmatch(duration)
        seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration) if abs(duration) <= LONGEST else math.inf
    else:
        seconds = math.nan
    if math.isnan(seconds):
        raise ValueError(f"{duration!r} is no duration; {_WAY_OUT}")
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"the duration {duration!r} is not between 0 and ten years")
    return round(seconds, 6)


_WAY_OUT = 'write "250ms", "10s", "5m", "2h", "1d" or a number of seconds'
