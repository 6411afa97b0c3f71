"""What a body requests in a turn: items (steps, sleeps, timers) and the abandoning of them."""

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, NamedTuple

from anthares44.automation.loop import ItemFuture, RunTimer

Place = tuple[str | None, int | None]


@dataclass(slots=True, eq=False)
class Item:
    """One requested item. `after` is the seq of the delivery in whose turn it was requested."""

    id: str
    kind: str
    after: int
    seconds: float
    future: ItemFuture | None = None
    timer: RunTimer | None = None
    fn: Callable[[], Any] | None = None
    context: Context | None = None
    retry: dict[str, Any] | None = None
    compensate: Callable[..., Any] | None = None
    exclusive: bool = False
    place: Place = (None, None)
    value: str | None = None
    error: dict[str, Any] | None = None
    abandoned: bool = False
    opened: bool = False

    def starts_at_once(self) -> bool:
        """Whether a first attempt may start before the request is on record. `opened`: it is on record already."""
        return self.kind == "step" and not self.exclusive and not self.opened

    def request(self, turn_after: int, token: str | None) -> dict[str, Any]:
        """The request as it stands in a TURN; `token` is that of an attempt the host has started."""
        request: dict[str, Any] = {"item": self.id, "kind": self.kind}
        if self.kind == "step":
            request["timeout"] = self.seconds
            request["retry"] = self.retry
            request["compensate"] = self.compensate is not None
            request["exclusive"] = self.exclusive
            request["started"] = token is not None
            request["token"] = token
        else:
            request["seconds"] = self.seconds
        if self.after != turn_after:
            request["after"] = self.after
        return request


class Abandon(NamedTuple):
    """The body has let go of an item that it requested in an earlier turn."""

    target: str
    after: int

    def request(self, turn_after: int, _token: str | None) -> dict[str, Any]:
        request: dict[str, Any] = {"item": self.target, "kind": "cancel_item", "target": self.target}
        if self.after != turn_after:
            request["after"] = self.after
        return request


class Turn(NamedTuple):
    """All that came out of one delivery. `ended` is None, or how the body ended, as it stands in a TURN."""

    after: int
    requests: list[Item | Abandon]
    ended: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Block:
    """Why a body cannot go on before its code is mended."""

    code: str
    message: str
    expected: str | None
    seen: str | None
    file: str | None
    line: int | None
