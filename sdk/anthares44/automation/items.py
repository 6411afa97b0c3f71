"""What a body requests in a turn: items (steps, sleeps, timers) and the abandoning of them."""

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, NamedTuple

from anthares44.automation.loop import ItemFuture, RunTimer
from anthares44.automation.options import DEFAULT_RETRY
from anthares44.automation.wire import dumps, quote

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

    def request(self, turn_after: int, token: str | None) -> str:
        """The request as it stands in a TURN, in JSON; `token` is that of an attempt the host has started."""
        after = "" if self.after == turn_after else f',"after":{self.after}'
        if self.kind != "step":
            return f'{{"item":{quote(self.id)},"kind":"{self.kind}","seconds":{self.seconds!r}{after}}}'
        retry = _DEFAULT_RETRY if self.retry is DEFAULT_RETRY else dumps(self.retry)
        started = f'true,"token":{quote(token)}' if token is not None else 'false,"token":null'
        return (
            f'{{"item":{quote(self.id)},"kind":"step","timeout":{self.seconds!r},"retry":{retry},'
            f'"compensate":{_BOOLEAN[self.compensate is not None]},"exclusive":{_BOOLEAN[self.exclusive]},'
            f'"started":{started}{after}}}'
        )


_DEFAULT_RETRY = dumps(DEFAULT_RETRY)
_BOOLEAN = ("false", "true")


class Abandon(NamedTuple):
    """The body has let go of an item that it requested in an earlier turn."""

    target: str
    after: int

    def request(self, turn_after: int, _token: str | None) -> str:
        after = "" if self.after == turn_after else f',"after":{self.after}'
        target = quote(self.target)
        return f'{{"item":{target},"kind":"cancel_item","target":{target}{after}}}'


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
