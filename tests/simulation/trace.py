"""What happened, in order: the last events for people, and a digest of all of them to compare two simulations."""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT = 40


class Trace:
    """`keep` bounds what is kept for people (None: everything)."""

    def __init__(self, now: Callable[[], float], keep: int | None = KEPT) -> None:
        self._now = now
        self._last: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=keep)
        self._digest = hashlib.blake2b(digest_size=16)
        self.count = 0

    def note(self, what: str, *details: Any) -> None:
        """Details are text, numbers or tuples of them: whatever reads the same in every process."""
        now = self._now()
        self.count += 1
        self._last.append((now, what, details))
        self._digest.update(f"{now!r} {what} {details!r}\n".encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def lines(self) -> list[str]:
        return [f"{at:12.6f}  {what:<18} {' '.join(map(str, details))}" for at, what, details in self._last]
