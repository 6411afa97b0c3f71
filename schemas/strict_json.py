"""JSON as the doors and the log take it: one reading only, and storable as text in Postgres.

Refused: the same key twice in one object at any depth, NaN, Infinity, numbers beyond a double's range,
NUL and lone surrogates in strings, nesting over `MAX_DEPTH`. Integers keep all digits (up to
`MAX_DIGITS`) and `1.0` stays a float. Nothing here changes a value to make it fit.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from schemas.errors import Refused

MAX_DEPTH = 128
MAX_DIGITS = 1000

# Matches as far as escapes are storable; a lone surrogate or NUL stops it. Possessive: linear time.
_STORABLE = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?:(?!0000|[dD][89a-fA-F])[0-9a-fA-F]{4}"
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+"
)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_OPENING = frozenset(b"[{")
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))


class _DuplicateKeyError(ValueError):
    pass


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return found


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is beyond the range of a double")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON value")


_splitter = json.JSONDecoder(parse_float=str)  # only the ends of values matter
_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def decode(data: bytes) -> Any:
    """Read one JSON value. Raises Refused: E_JSON_INVALID, E_DUPLICATE_KEY, E_BODY_UNSTORABLE."""
    text = _text(data)
    _check_bounds(data)
    try:
        value = _decoder.decode(text)
    except _DuplicateKeyError as exc:
        raise Refused(
            "E_DUPLICATE_KEY", f"the key {str(exc)[:80]!r} stands twice in one object; send each key once"
        ) from exc
    except ValueError as exc:
        raise Refused("E_JSON_INVALID", f"the text is not valid JSON: {exc}") from exc
    _check_storable(data)  # after the syntax: only then is a backslash surely an escape
    return value


def check(data: bytes) -> None:
    """Refuse what `decode` refuses, at a fraction of its cost where there is nothing to refuse."""
    if not _is_plain(data):
        decode(data)


def split_array(data: bytes, most: int) -> list[bytes] | None:
    """The items of one JSON array, byte for byte, each for `check`: what one of them may not hold is not found here.
    Where there are more than `most`, one more than that. None for any other value.

    Raises Refused E_JSON_INVALID where the items cannot be told apart.
    """
    text = _text(data)
    _check_bounds(data)
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        return None
    try:
        return _items(text, at + 1, most)
    except ValueError as exc:
        raise Refused("E_JSON_INVALID", f"the text is no array of JSON values: {exc}") from exc


def encode(value: Any) -> str:
    """Write a value compactly. Raises Refused where the text would not read back as the same value."""
    _check_types(value, 0)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as exc:
        raise Refused("E_JSON_INVALID", f"the value cannot be written as JSON: {exc}") from exc
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise Refused("E_BODY_UNSTORABLE", "a string holds half of a surrogate pair") from exc
    _check_storable(data)
    return text


def _text(data: bytes) -> str:
    """Refused in words of its own is what JSON's would say nothing about: bytes that cannot be seen."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Refused("E_JSON_INVALID", f"the text is not UTF-8: byte {exc.start} begins no character") from exc
    if text.startswith("\ufeff"):
        raise Refused("E_JSON_INVALID", "the text begins with a byte order mark (EF BB BF); send it without one")
    if not text.strip():
        raise Refused("E_JSON_INVALID", "the text is empty; expected one JSON value")
    return text


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _items(text: str, at: int, most: int) -> list[bytes]:
    """What stands behind the opening bracket at `at - 1`, up to its closing one and nothing behind that."""
    items: list[bytes] = []
    at = _skip(text, at)
    while items or text[at : at + 1] != "]":
        begin = at
        _, at = _splitter.raw_decode(text, begin)
        items.append(text[begin:at].encode())
        if len(items) > most:
            return items
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    if text[at : at + 1] != "]" or _skip(text, at + 1) != len(text):
        raise ValueError(f"expected a comma or the end of the array at character {at}")
    return items


def _is_plain(data: bytes) -> bool:
    """Whether `decode` surely takes it. What is read and written again has lost the colon of each key that stood twice,
    and no other; escapes by number may hide colons, and what cannot be stored.
    """
    if _has_numbered_escape(data):
        return False
    try:
        _check_bounds(data)
        again = msgspec.json.encode(msgspec.json.decode(data))
    except (Refused, msgspec.MsgspecError, OverflowError):  # it may still be fine: a whole number of 70 bits, say
        return False
    return data.count(b":") == again.count(b":")


def _check_bounds(data: bytes) -> None:
    if (
        len(data) > MAX_DIGITS
        and _LONG_NUMBER.search(data) is not None
        and _LONG_NUMBER.search(_STRING.sub(b'""', data)) is not None
    ):
        raise Refused("E_JSON_INVALID", f"a number has over {MAX_DIGITS} digits")
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for byte in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        if byte not in _OPENING:
            depth -= 1
            continue
        depth += 1
        if depth > MAX_DEPTH:
            raise Refused("E_JSON_INVALID", f"the text is nested over {MAX_DEPTH} levels deep")


def _check_storable(data: bytes) -> None:
    if not _has_numbered_escape(data):
        return
    found = _STORABLE.match(data)
    end = found.end() if found is not None else 0
    if end != len(data):
        raise Refused(
            "E_BODY_UNSTORABLE",
            f"a string holds {data[end : end + 6].decode('ascii', 'replace')} (byte {end}): NUL and "
            "halves of surrogate pairs cannot be stored; leave them out",
        )


def _has_numbered_escape(data: bytes) -> bool:
    """As good as no text has a backslash, and one byte is found much faster than two."""
    return b"\\" in data and b"\\u" in data


def _check_types(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return
    if depth >= MAX_DEPTH:
        raise Refused("E_JSON_INVALID", f"the value is nested over {MAX_DEPTH} levels deep")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise Refused("E_JSON_INVALID", f"the key {key!r} is not text; JSON would turn it into text")
            _check_types(item, depth + 1)
    elif kind is list:
        for item in value:
            _check_types(item, depth + 1)
    else:
        raise Refused("E_JSON_INVALID", f"a {kind.__name__} is no JSON value; use text, numbers, lists, dicts")
