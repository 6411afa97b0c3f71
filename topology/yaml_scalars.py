"""Values of plain YAML scalars by the YAML 1.2 core schema, and only that: `on` and `12:30` are text.

What JSON cannot hold without change (`.inf`, `.nan`, numbers of thousands of digits) is refused.
"""

import re

MAX_DIGITS = 1000

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_OCT = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve_plain(text: str) -> object:
    """The value of an unquoted scalar. Raises ValueError, with the reason, for what cannot be kept."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] in "-+.0123456789":
        number = _number(text)
        if number is not None:
            return number
    return text


def _number(text: str) -> int | float | None:
    if _ENDLESS.fullmatch(text):
        raise ValueError(f"`{text}` is not a number that JSON knows; quote it to make it text")
    if _INT.fullmatch(text):
        return int(_bounded(text))
    if _OCT.fullmatch(text):
        return int(_bounded(text), 8)
    if _HEX.fullmatch(text):
        return int(_bounded(text), 16)
    if _FLOAT.fullmatch(text):
        value = float(_bounded(text))
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"`{text[:40]}` is larger than a float can hold; quote it to make it text")
        return value
    return None


def _bounded(text: str) -> str:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} characters; at most {MAX_DIGITS} are read")
    return text
