"""An executor in memory for one run: settles what the body asked for, keeps the history, plays it again."""

import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from anthares44.automation.codec import Codec
from anthares44.automation.endings import Settings
from anthares44.automation.host.generators import watch_generators
from anthares44.automation.items import Abandon, Item, Turn
from anthares44.automation.redaction import Redaction
from anthares44.automation.replay import Replay
from anthares44.automation.turns import Run

STARTED = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
ROOT = __file__.rpartition("/")[0]

watch_generators()  # as a host does

Told = tuple[int, list[str], dict[str, Any] | None]


def at(seconds: float) -> str:
    return (STARTED + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def settings(emitted: list[dict[str, Any]] | None = None, items: int = 10_000) -> Settings:
    emit = (lambda _: None) if emitted is None else emitted.append
    return Settings(Codec(Redaction()), items, ROOT, emit)


def new_run(body: Callable[..., Any], given: Settings | None = None, **start: Any) -> Run:
    message = {
        "run": "run_1",
        "fence": 1,
        "workflow": "w",
        "version": "1",
        "generation": 0,
        "input": '{"name":"n"}',
        "started_at": at(0),
        "seed": "seed",
        "key": "key",
    }
    return Run(message | start, body, given or settings())


def told(turn: Turn) -> Told:
    """The turn as text that can be compared: what, with which terms, asked after which delivery."""
    asked = []
    for request in turn.requests:
        if isinstance(request, Abandon):
            asked.append(f"cancel {request.target} after {request.after}")
        else:
            asked.append(f"{request.kind} {request.id} {request.seconds:g} after {request.after}")
    return turn.after, asked, turn.ended


class Life:
    """One run from start to end, in an order of outcomes that the seed chooses."""

    def __init__(self, body: Callable[..., Any], seed: int, failing: Iterable[str] = ()) -> None:
        self.body = body
        self.chance = random.Random(seed)
        self.failing = set(failing)
        self.turns: list[Told] = []
        self.history: list[dict[str, Any]] = []
        self.open: dict[str, Item] = {}
        self.run = new_run(body)
        self._hear(self.run.begin())
        while self.ended is None and self.open:
            self._settle(self.chance.choice(list(self.open)))

    @property
    def ended(self) -> dict[str, Any] | None:
        return self.turns[-1][2]

    def _hear(self, turn: Turn) -> None:
        assert self.run.blocked is None, self.run.blocked
        self.turns.append(told(turn))
        for request in turn.requests:
            if isinstance(request, Item):
                self.open[request.id] = request
            else:
                self._record(self.open.pop(request.target), "cancelled", {})

    def _settle(self, item_id: str) -> None:
        item = self.open.pop(item_id)
        failed = item_id in self.failing
        more: dict[str, Any] = {}
        if failed:
            more["error"] = {"code": "E_STEP_FAILED", "type": "ValueError", "message": f"no {item_id}"}
        elif item.kind == "step":
            more["value"] = json.dumps(item_id)
        entry = self._record(item, "failed" if failed else "succeeded", more)
        self._hear(deliver(self.run, entry))

    def _record(self, item: Item, status: str, more: dict[str, Any]) -> dict[str, Any]:
        seq = len(self.history) + 1
        entry = {"seq": seq, "item": item.id, "kind": item.kind, "after": item.after, "status": status}
        entry |= {"at": at(seq), **more}
        self.history.append(entry)
        return entry

    def resumed(self, cut: int) -> tuple[Run, Turn]:
        """Another run to which the first `cut` records were played, and the turn that came out."""
        run = new_run(self.body)
        turn = Replay(run, self.history[:cut]).play(len(self.history) + 1)
        assert turn is not None
        return run, turn


def deliver(run: Run, entry: dict[str, Any]) -> Turn:
    return run.deliver(
        entry["seq"],
        entry["item"],
        entry["status"],
        at=entry["at"],
        value=entry.get("value"),
        error=entry.get("error"),
    )
