"""Text for people, with what looks like a secret taken out: for summaries of dead letters, and for log lines.

Hidden is a value behind the name of a secret (`?csrf-token=...`, `X-Api-Key: ...`, `"clientSecret": "..."`), by the
rule for names that results have, and user and password of an address. A code of ours (`E_TOKEN`) is no name.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.results import REDACTED, is_secret_name

_DEEPEST: Final = 20
_SUSPECT = re.compile(r"password|token|secret|authorization|key|@", re.IGNORECASE)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40}://)[^\s/?#@\"'<>]{1,500}@")
# The name is taken whole or not at all, so that a long text costs one look at each of its words.
_NAMED = re.compile(r"""(?<![\w.%-])([A-Za-z][\w.%-]*+)\\?["']?\s{0,9}(?:=>|={1,2}|:)\s{0,9}""")
_VALUE = re.compile(
    r"""(?P<open>\\?")(?:[^"\\]|\\.)*+"? | (?P<quote>')(?:[^'\\]|\\.)*+'?
      | (?:bearer|basic|token|digest)\s+[^\s&,;"'<>)}\]]++
      | [^\s&,;"'<>(){}\[\]\\]++""",
    re.VERBOSE | re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """The text with `[redacted]` in the place of each value that must not be shown."""
    if _SUSPECT.search(text) is None:
        return text
    text, parts, at = _ADDRESS.sub(rf"\1{REDACTED}@", text), [], 0
    for named in _NAMED.finditer(text):
        value = _VALUE.match(text, named.end()) if named.start() >= at and _is_secret(named[1]) else None
        if value is not None:
            quote = (value["open"] or value["quote"] or "")[-1:]
            parts += [text[at : named.end()], quote, REDACTED, quote]
            at = value.end()
    return "".join([*parts, text[at:]])


def told_without_secrets(name: str, value: Any, depth: int = 0) -> Any:
    """A value of a log line under its name, at any depth. What is no text, list or mapping stays as it is."""
    if isinstance(value, str):
        return REDACTED if is_secret_name(name) else without_secrets(value)
    if depth > _DEEPEST:
        return REDACTED
    if isinstance(value, Mapping):
        return {key: told_without_secrets(str(key), item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [told_without_secrets(name, item, depth + 1) for item in value]
    return value


def _is_secret(name: str) -> bool:
    return not name.startswith("E_") and is_secret_name(name)
