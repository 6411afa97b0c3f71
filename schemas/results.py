"""Results as they may be recorded: strict JSON text in which no field named like a secret holds text.

What is recorded is also what the workflow sees. A field is secret when its last word is password, token,
secret, authorization or api_key, in any case style; its text, also inside lists, becomes `[redacted]`.
Numbers stay, and a nested object is judged by its own names. The SDK's codec gives the same text for the
same JSON: both are held to `tests/conformance/redaction_vectors.json`.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from schemas import strict_json
from schemas.errors import Refused

REDACTED = "[redacted]"
RESULT_BYTES = 256 * 1024
RUN_RESULT_BYTES = 16 * 1024 * 1024

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = frozenset({"password", "token", "secret", "authorization", "apikey"})
_API_KEY = ("api", "key")
# Names of secrets cannot be spelled without one of these, so most texts need no walk through the value.
_SUSPECT = re.compile(r"password|token|secret|authorization|key", re.IGNORECASE)


def seal(text: str, what: str, limit: int = RESULT_BYTES) -> str:
    """Check, redact and write JSON text anew, compactly. `limit` is in bytes; `what` begins a message.

    Raises Refused: E_RESULT_NOT_JSON, E_RESULT_TOO_LARGE. No message repeats a part of the text.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as exc:
        message = f"{what} holds half of a surrogate pair, which no JSON text may hold"
        raise Refused("E_RESULT_NOT_JSON", message) from exc
    if len(data) > limit:
        raise too_large(what, f"{len(data)} bytes", limit)
    try:
        value = strict_json.decode(data)
    except Refused as exc:
        raise not_json(what, exc) from exc
    return write(value, what, limit)


def write(value: Any, what: str, limit: int = RESULT_BYTES) -> str:
    """The recorded text of a plain JSON value, redacted. Raises as `seal`."""
    try:
        text = strict_json.encode(value)
        if _SUSPECT.search(text) is not None:
            text = strict_json.encode(redact(value))
    except Refused as exc:
        raise not_json(what, exc) from exc
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    if size > limit:
        raise too_large(what, f"{size} bytes", limit)
    return text


def redact(value: Any, exempt: Collection[str] = ()) -> Any:
    """The value with the text of secret fields replaced; names in `exempt` (any case style) are kept."""
    kept = frozenset(_words_of(name) for name in exempt)
    return _redact(value, kept, hide=False)


def is_secret_name(name: str) -> bool:
    """Tell whether text in a field of this name must not be recorded."""
    words = _words_of(name)
    return bool(words) and (words[-1] in _SECRET_WORDS or words[-2:] == _API_KEY)


def too_large(what: str, seen: str, limit: int) -> Refused:
    """The refusal of a result over its limit; `seen` says its size, as far as it is known."""
    return Refused(
        "E_RESULT_TOO_LARGE",
        f"{what} has {seen} as JSON; at most {limit} are recorded. Return only what later steps need: "
        "ask for fewer fields or rows, or keep the data elsewhere and return where it is",
    )


def not_json(what: str, cause: Refused) -> Refused:
    """The refusal for what `strict_json` refused. A key of the data stays out of it: the data may be foreign."""
    reason = "a key stands twice in one object" if cause.code == "E_DUPLICATE_KEY" else cause.message
    return Refused("E_RESULT_NOT_JSON", f"{what} cannot be recorded as JSON without change: {reason}")


@lru_cache(maxsize=4096)
def _words_of(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))


def _redact(value: Any, kept: frozenset[tuple[str, ...]], *, hide: bool) -> Any:
    if isinstance(value, str):
        return REDACTED if hide else value
    if isinstance(value, list):
        return [_redact(item, kept, hide=hide) for item in value]
    if isinstance(value, dict):
        return {
            name: _redact(item, kept, hide=is_secret_name(name) and _words_of(name) not in kept)
            for name, item in value.items()
        }
    return value
