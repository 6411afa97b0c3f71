"""How many bytes of bodies this process holds at once: counted as they arrive, given back when they are answered.

Past the bound a request is told to come again before more of it is read, so that a flood costs its senders and not
this process. Announced lengths count for nothing: who announces much and sends nothing takes nobody's place.
"""

from schemas.errors import Unavailable


class Budget:
    """`held` and `most` are in bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def share(self) -> "Share":
        """A request's part. Raises `Unavailable` E_OVERLOADED when nothing is left."""
        if self.held >= self.most:
            raise _overloaded(self.most)
        return Share(self)


class Share:
    """What one request holds."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held = 0

    def take(self, size: int) -> None:
        """Raises `Unavailable` E_OVERLOADED when that is more than is left."""
        budget = self._budget
        if budget.held + size > budget.most:
            raise _overloaded(budget.most)
        budget.held += size
        self._held += size

    def give_back(self) -> None:
        self._budget.held -= self._held
        self._held = 0


def _overloaded(most: int) -> Unavailable:
    return Unavailable("E_OVERLOADED", f"{most} bytes of requests are being handled already; send it again in a moment")
