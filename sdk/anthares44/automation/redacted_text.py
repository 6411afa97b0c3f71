"""Texts of errors, with what looks like a secret taken out before they leave the process.

Hidden is a value behind the name of a secret (`?csrf-token=...`, `X-Api-Key: ...`, `{'password': '...'}`), by the rule
for names that results have, and user and password of an address. A code (`E_TOKEN`) is no name.
"""

import re

from anthares44.automation.redaction import REDACTED, Redaction

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
_names = Redaction()


def without_secrets(text: str) -> str:
    """The text with `[redacted]` in the place of each value that must not be kept."""
    if _SUSPECT.search(text) is None:
        return text
    text, parts, at = _ADDRESS.sub(rf"\1{REDACTED}@", text), [], 0
    for named in _NAMED.finditer(text):
        is_secret = not named[1].startswith("E_") and _names.hides(named[1])
        value = _VALUE.match(text, named.end()) if is_secret and named.start() >= at else None
        if value is not None:
            quote = (value["open"] or value["quote"] or "")[-1:]
            parts += [text[at : named.end()], quote, REDACTED, quote]
            at = value.end()
    return "".join([*parts, text[at:]])
