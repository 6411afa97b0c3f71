"""How many connections a gateway holds: a bound for the process, and one for each address, so that none takes all.

A connection past a bound gets a spare seat: for a second, in which the health checks are answered as ever and all else
with E_OVERLOADED; then it is closed. There are few of those, fewer for one address, and what finds none is closed as it
comes. Connections of a trusted proxy have no address of their own: there the requests of each caller count instead.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address

from processors.gateway.callers import Callers, peer_of
from processors.ports.addresses import address_of
from processors.ports.measures import Measures
from schemas.errors import Unavailable

HEALTH = frozenset({"/healthz", "/readyz"})
SPARE = 64
SPARE_EACH = 8
_NEIGHBOURHOOD = 64  # bits of an IPv6 address that one customer of a network has to himself


class Bound(StrEnum):
    PROCESS = "process"
    ADDRESS = "address"


@dataclass(slots=True)
class Seat:
    """A connection's place. `past` is the bound that it is beyond; without a `place` it is closed at once."""

    who: str
    past: Bound | None = None
    has_place: bool = True


class Connections:
    def __init__(self, most: int, each: int, callers: Callers, measures: Measures) -> None:
        self.callers = callers
        self.most, self.each = most, each
        self.open = 0
        self.spare = 0
        self._measures = measures
        self._of: Counter[str] = Counter()
        self._spare_of: Counter[str] = Counter()

    def come(self, transport: object) -> Seat:
        """Every seat is given back by `go`."""
        peer = peer_of(transport)
        who = "" if self.callers.is_proxy(peer) else _who(peer)
        seat = Seat(who, self._bound(who))
        if seat.past is None:
            self.open += 1
            self._of[who] += 1
            self._measures.set("connections_open", self.open)
            return seat
        self._measures.count("connections_refused_total", 1, seat.past.value)
        seat.has_place = self.spare < SPARE and self._spare_of[who] < SPARE_EACH
        if seat.has_place:
            self.spare += 1
            self._spare_of[who] += 1
        return seat

    def go(self, seat: Seat) -> None:
        if seat.past is None:
            self.open -= 1
            self._measures.set("connections_open", self.open)
            _less(self._of, seat.who)
        elif seat.has_place:
            self.spare -= 1
            _less(self._spare_of, seat.who)

    def under_way(self, address: str) -> int:
        """What counts for this address now."""
        return self._of[_who(address)]

    def _bound(self, who: str) -> Bound | None:
        if self.open >= self.most:
            return Bound.PROCESS
        return Bound.ADDRESS if who and self._of[who] >= self.each else None

    def refusal(self, bound: Bound) -> Unavailable:
        seen = (
            f"{self.most} connections are open, as many as this gateway takes"
            if bound is Bound.PROCESS
            else f"{self.each} connections of your address are open, as many as one may have"
        )
        return Unavailable("E_OVERLOADED", f"{seen}; send it again in a moment, with the same key")

    @contextmanager
    def request_of(self, caller: str) -> Iterator[None]:
        """A request that a trusted proxy brings counts for its caller, as a connection would. Raises `Unavailable`."""
        who = _who(caller)
        if self._of[who] >= self.each:
            self._measures.count("connections_refused_total", 1, Bound.ADDRESS.value)
            raise self.refusal(Bound.ADDRESS)
        self._of[who] += 1
        try:
            yield
        finally:
            _less(self._of, who)


def _who(text: str) -> str:
    """Whose connections count together: an IPv4 address, or the network of an IPv6 address."""
    address = address_of(text)
    if isinstance(address, IPv6Address):
        return f"{int(address) >> _NEIGHBOURHOOD:x}"
    return text if address is None else str(address)


def _less(counted: Counter[str], who: str) -> None:
    counted[who] -= 1
    if counted[who] <= 0:
        del counted[who]  # whoever comes and goes leaves nothing behind
