"""Which fields of a value hold a secret, by their name.

A field is secret when its last word is password, token, secret, authorization or api_key, in any case
style (`accessToken`, `X-API-Key`, `DB_PASSWORD`). Numbers in a name are no words (`password2`).
"""

import re
from collections.abc import Iterable
from functools import lru_cache

REDACTED = "[redacted]"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = frozenset({"password", "token", "secret", "authorization", "apikey"})
_PAIR = ("api", "key")


@lru_cache(maxsize=8192)
def words_of(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))


class Redaction:
    """Answers for one project: `exempt` are the names, in any case style, that it wants to keep."""

    __slots__ = ("_exempt", "_known")

    def __init__(self, exempt: Iterable[str] = ()) -> None:
        self._exempt = frozenset(words_of(name) for name in exempt)
        self._known: dict[str, bool] = {}

    def hides(self, name: str) -> bool:
        """Whether the string in the field of this name must not be kept."""
        known = self._known.get(name)
        if known is None:
            words = words_of(name)
            known = bool(words) and (words[-1] in _SECRET or words[-2:] == _PAIR) and words not in self._exempt
            if len(self._known) < _REMEMBERED:  # names that are data (ids as keys) must not pile up
                self._known[name] = known
        return known


_REMEMBERED = 4096
