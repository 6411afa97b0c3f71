"""A run taken up again: its history is played into the body, and the body must ask for the same.

After the delivery k every recorded item with `after = k` must have been requested, in any order; an item
with another `after`, or a body that ends with deliveries left, is E_NONDETERMINISTIC_REPLAY. The outcome
is one turn that holds all that has no settled outcome: what no record knows, and what is on record as opened
(its timeout and retry policy stand in no record; the executor decides when it starts).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from anthares44.automation.items import Abandon, Item, Place, Turn
from anthares44.automation.places import defining_place, waiting_place
from anthares44.automation.turns import Run

DIVERGED = "E_NONDETERMINISTIC_REPLAY"
OPENED = "opened"


class _Record(NamedTuple):
    kind: str
    after: int
    settled: bool


class Replay:
    """Plays one run's history; `history` is all items of its HISTORY messages."""

    def __init__(self, run: Run, history: Iterable[dict[str, Any]]) -> None:
        self._run = run
        self._records: dict[str, _Record] = {}
        self._due: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._deliveries: list[dict[str, Any]] = []
        self._carried: dict[str, Item | Abandon] = {}
        self._ended: dict[str, Any] | None = None
        self._at = -1
        for entry in history:
            self._read(entry)
        self._deliveries.sort(key=lambda entry: int(entry["seq"]))

    def _read(self, entry: dict[str, Any]) -> None:
        item, settled = entry["item"], entry["status"] != OPENED
        known = self._records.get(item)
        self._records[item] = _Record(entry["kind"], entry["after"], settled or (known is not None and known.settled))
        self._due[entry["after"]][item] = None
        if settled:
            self._deliveries.append(entry)

    def play(self, most: int) -> Turn | None:
        """Play up to `most` deliveries; the turn to send once all are played or the run is blocked."""
        run = self._run
        run.replaying = True
        if self._at < 0:
            self._judge(run.begin())
            self._at = 0
        stop = min(self._at + most, len(self._deliveries))
        while self._at < stop and not run.blocked:
            entry = self._deliveries[self._at]
            self._at += 1
            turn = run.deliver(
                entry["seq"],
                entry["item"],
                entry["status"],
                at=entry["at"],
                value=entry.get("value"),
                error=entry.get("error"),
            )
            self._judge(turn)
        if self._at < len(self._deliveries) and not run.blocked:
            return None
        run.replaying = False
        return Turn(run.seq, list(self._carried.values()), self._ended)

    def _judge(self, turn: Turn) -> None:
        """Compare what the body has asked for with what is on record."""
        if self._run.blocked:
            return
        due = self._due.pop(turn.after, {})
        for request in turn.requests:
            if isinstance(request, Abandon):
                self._let_go(request)
            elif not self._matches(request, due):
                return
        if due:
            self._missing(next(iter(due)), turn)
        elif turn.ended is not None:
            self._ended = turn.ended
            self._check_end()

    def _matches(self, item: Item, due: dict[str, None]) -> bool:
        record = self._records.get(item.id)
        if record is None:
            self._carried[item.id] = item
            return True
        if record.kind == item.kind and record.after == item.after:
            due.pop(item.id, None)
            if not record.settled:
                item.opened = True
                self._carried[item.id] = item
            return True
        self._diverge(
            _named(record.kind, item.id, record.after),
            _named(item.kind, item.id, item.after),
            item.place,
        )
        return False

    def _let_go(self, abandon: Abandon) -> None:
        record = self._records.get(abandon.target)
        # In flight or opened in an earlier life at most, and wanted by nobody now.
        self._carried.pop(abandon.target, None)
        if record is not None and not record.settled:
            self._carried[f"{abandon.target}\n"] = abandon

    def _missing(self, item: str, turn: Turn) -> None:
        record, run = self._records[item], self._run
        asked = [request for request in turn.requests if isinstance(request, Item)]
        if asked:
            seen = ", ".join(_named(request.kind, request.id, request.after) for request in asked)
            place = asked[0].place
        elif turn.ended is not None:
            seen, place = f"the end of the body ({turn.ended['status']})", self._body_place()
        else:
            main = run.main
            seen = "a body that waits"
            place = waiting_place(run.settings.root, main.get_coro() if main else None)  # type: ignore[arg-type]
        self._diverge(_named(record.kind, item, record.after), seen, place)

    def _check_end(self) -> None:
        left = [entry for entry in self._deliveries[max(self._at, 0) :] if not self._is_idle(entry)]
        if left:
            first = left[0]
            self._diverge(
                f"the outcome {first['seq']} of {first['kind']} {first['item']!r} to be awaited",
                f"the end of the body with {len(left)} outcomes left",
                self._body_place(),
            )

    def _is_idle(self, entry: dict[str, Any]) -> bool:
        """The record that the body let the item go: it was written after the body's last turn."""
        item = self._run.items.get(entry["item"])
        return entry["status"] == "cancelled" and item is not None and item.abandoned

    def _body_place(self) -> Place:
        return defining_place(self._run.settings.root, self._run.body)

    def _diverge(self, expected: str, seen: str, place: Place) -> None:
        where = f" at {place[0]}:{place[1]}" if place[0] else ""
        message = (
            f"the body took another way than the recorded one: expected {expected}, seen {seen}{where}. "
            "Keep the body deterministic outside of steps; cancel this run and start it again with a new key"
        )
        self._run.block(DIVERGED, message, expected=expected, seen=seen, place=place)


def _named(kind: str, item: str, after: int) -> str:
    return f"{kind} {item!r} after {after}"
