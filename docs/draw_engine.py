"""Draws docs/engine.md from the engine's own tables and structures: `python docs/draw_engine.py` writes it anew.

A test compares the committed page with what this draws, so the page cannot fall behind the code.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

from msgspec.structs import fields

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "engine.md"
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from processors.engine import commands, effects, requests  # noqa: E402  found only with the path above
from processors.engine.decide import CLOSE_GRACE  # noqa: E402
from processors.engine.endings import WORTH_PARKING  # noqa: E402
from processors.engine.moves import MOVES, TERMINAL, Move, RunStatus  # noqa: E402
from processors.engine.state import FIRST_TELLING_CRASH  # noqa: E402
from schemas.records import Kind, Record, Status  # noqa: E402

COMMANDS = {
    commands.Claimed: "The executor owns the run; its log was folded.",
    commands.Turn: "The body has answered a delivery: what it asks for, or how it ended.",
    commands.Done: "An attempt has a result.",
    commands.Failed: "An attempt failed.",
    commands.Due: "A timer or a retry is due.",
    commands.BodyLost: "The step host died with the run in it. Where the run is not suspected, it does not count.",
    commands.Diverged: "The body cannot go on as it is: replay took another way, or the bundle is broken.",
    commands.Cancel: "Mail: somebody wants the run to stop.",
    commands.TooOld: "It was first claimed when its event was too old for its trigger: it ends without a body.",
    commands.DeadlinePassed: "The run's time is over: it is stopped as by a cancel, whatever it is doing.",
}
REQUESTS = {
    requests.StepRequest: "Run a step. `started`: the body's side has begun attempt 1 by itself.",
    requests.SleepRequest: "A durable sleep.",
    requests.TimerRequest: "A timer of the body's own event loop (`wait_for`, `timeout`).",
    requests.SkipRequest: "A step whose `if` was false: settled without an attempt.",
    requests.CancelRequest: "The body gave an item up; a late success is recorded and not delivered.",
}
EFFECTS = {
    effects.Park: "The slot goes back, the lane stays.",
    effects.Block: "The run waits for a fixed version or an operator.",
    effects.End: "Slot, lane, history, event and dead letter, all in this commit.",
    effects.StartBody: "Begin, or come back and play the history.",
    effects.Deliver: "Hand a recorded outcome to the body.",
    effects.RunStep: "Start an attempt.",
    effects.Arm: "Send `Due` at this time, while the run is owned.",
    effects.CancelStep: "Stop the attempt in flight.",
    effects.CloseBody: "Cancel the body; it has some seconds to clean up.",
    effects.DropBody: "Forget the body at once.",
}
KINDS = {
    Kind.STEP: "a step of the workflow",
    Kind.SLEEP: "a durable sleep",
    Kind.TIMER: "a timer of the body's event loop, `~t<n>`",
    Kind.RUN: "the run itself, `~run`",
}
STATUSES = {
    Status.OPENED: "a sleep or timer begins; `due` says until when",
    Status.SUCCEEDED: "the outcome of a step, or a timer that was due",
    Status.FAILED: "an attempt failed; final, or `due` says when it is tried again",
    Status.LOST: "the attempt was in flight when its owner or host went; it takes a number and no try",
    Status.CANCELLED: "given up by the body, or not settled when the run ended",
    Status.SKIPPED: "a step whose `if` was false",
    Status.CLOSING: "the outcome is decided; what is in flight settles first",
    Status.BLOCKED: "the run cannot go on by itself",
    Status.UNBLOCKED: "a fixed version or an operator lets it go on",
    Status.ENDED: "the last record",
}
WHEN = (
    ("In the transaction of the records", effects.InTransaction),
    ("After its commit, in this order", effects.AfterCommit),
    ("Not waiting for it", effects.AtOnce),
)


def drawn() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# The engine",
            "",
            "Drawn by `docs/draw_engine.py` from the code; change the code, then draw it again.",
            "",
            "`decide(state, command, now, roll)` answers records and effects. It is pure: time and chance are",
            "arguments, and the state changes only by folding records, so folding the log gives it back.",
            "",
            "## States of a run",
            "",
            *_diagram(),
            "",
            "A run gives its slot back only when nothing is in flight and the next timer is more than",
            f"{WORTH_PARKING.total_seconds() * 1000:.0f} ms away. A cancelled body is dropped after",
            f"{CLOSE_GRACE.total_seconds():.0f} s. A run that ends its worker as often as its queue's `maxAttempts`",
            f"says, and at least {FIRST_TELLING_CRASH} times, fails.",
            "",
            "## Commands",
            "",
            *_classes("command", commands.Command, COMMANDS),
            "",
            "## Requests of a turn",
            "",
            *_classes("request", requests.Request, REQUESTS),
            "",
            "## Records",
            "",
            f"Fields: {', '.join(f'`{field.name}`' for field in fields(Record))}.",
            "`seq` is the order of commit, of delivery and of undoing; `after` is the last delivery that the body had",
            "heard when it asked.",
            "",
            *_table(("kind", "what it is"), ((f"`{kind}`", KINDS[kind]) for kind in Kind)),
            "",
            *_table(("status", "when"), ((f"`{status}`", STATUSES[status]) for status in Status)),
            "",
            "## Effects",
            "",
            *(line for title, union in WHEN for line in (f"### {title}", "", *_classes("effect", union, EFFECTS), "")),
        ]
    )


def _diagram() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {RunStatus.PENDING}"]
    for status in RunStatus:
        lines += [f"    {status} --> {after}: {move.value}" for move, after in MOVES[status].items()]
    lines += [f"    {status} --> [*]" for status in RunStatus if status in TERMINAL and _is_reached(status)]
    return [*lines, "```", "", *_moves()]


def _is_reached(status: RunStatus) -> bool:
    return any(status in moves.values() for moves in MOVES.values())


def _moves() -> list[str]:
    rows = [(f"`{status}`", _way(status)) for status in RunStatus]
    return _table(("state", "moves"), rows)


def _way(status: RunStatus) -> str:
    if status in TERMINAL:
        return "none: the run has ended" if _is_reached(status) else "none: for compensations, which come later"
    told: Sequence[tuple[Move, RunStatus]] = list(MOVES[status].items())
    return ", ".join(f"{move.value}: `{after}`" for move, after in told) or "none yet: for features that come later"


def _classes(what: str, union: object, meanings: dict[type, str]) -> list[str]:
    rows = []
    for kind in get_args(union):
        told = ", ".join(f"`{field.name}`" for field in fields(kind)) or "none"
        rows.append((f"`{kind.__name__}`", told, meanings[kind]))
    return _table((what, "fields", "meaning"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(drawn(), "utf-8")
