"""Values as JSON text and back. A body is written once: the bytes of that writing are signed, sent and sent again."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from anthares44.automation.client.errors import ServiceRefused

Dumps: TypeAlias = Callable[[Any], str | bytes]
Loads: TypeAlias = Callable[[str], Any]


def plain_json(value: Any) -> str:
    """Refuses NaN and Infinity, which are no JSON; whole numbers keep all their digits."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_json(text: str) -> Any:
    """Whole numbers of any length; fractions as floats, and never silently as infinity."""
    return json.loads(text, parse_float=_finite, parse_constant=_no_number)


def exact_json(text: str) -> Any:
    """As `loads=exact_json`: fractions come as `Decimal`, with every digit as it was stored."""
    return json.loads(text, parse_float=Decimal, parse_constant=_no_number)


def written(value: Any, dumps: Dumps) -> bytes:
    """Raises ServiceRefused E_JSON_INVALID."""
    try:
        text = dumps(value)
        return text if isinstance(text, bytes) else text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise ServiceRefused(
            "E_JSON_INVALID",
            f"the value cannot be written as JSON: {exc}; expected objects with text as keys, lists, text, finite "
            "numbers, true, false and null",
        ) from exc


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is beyond a float; give the client loads=exact_json")
    return number


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
