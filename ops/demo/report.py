"""The demo's report on stdout: runs by state, one log of each workflow, duplicates, latency, expectations."""

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ops.demo.expectations import Expectations

if TYPE_CHECKING:
    from ops.demo.scenario import Story


def print_report(story: "Story", documents: list[dict[str, Any]], expectations: Expectations, seconds: float) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=140)
    console.print(_by_state(story))
    for document in documents:
        console.print(_log_of(document))
    console.print(_duplicates(story))
    console.print(_latency(story))
    console.print(_verdict(expectations))
    held = sum(one.held for one in expectations)
    total = len(list(expectations))
    colour = "green" if expectations.all_held else "red"
    console.print(f"[{colour}]{held} of {total} expectations held[/{colour}] in {seconds:.0f} s")


def _by_state(story: "Story") -> Table:
    table = Table(title="Runs by state", title_justify="left")
    for title in ("workflow", "state", "runs"):
        table.add_column(title, justify="right" if title == "runs" else "left")
    counts = Counter((run["workflow_id"], run["state"]) for run in story.runs)
    for (workflow, state), count in sorted(counts.items()):
        table.add_row(workflow, state, str(count))
    return table


def _log_of(document: dict[str, Any]) -> Table:
    title = f"{document['workflow_id']} {document['run_id']}: {document['state']}"
    table = Table(title=title, title_justify="left")
    for column in ("seq", "step", "attempt", "status", "error", "took", "result"):
        table.add_column(column, overflow="fold" if column == "result" else "ellipsis")
    for row in document["attempts"]:
        took = _between(row["started_at"], row["finished_at"])
        result = "" if row["result"] is None else escape(json.dumps(row["result"])[:60])
        table.add_row(
            str(row["seq"]), row["step_id"], str(row["attempt"] or ""), row["status"], row["error_code"] or "",
            "" if took is None else f"{1000 * took:.0f} ms", result,
        )  # fmt: skip
    return table


def _duplicates(story: "Story") -> Table:
    table = Table(title="Answers to the duplicates", title_justify="left")
    for column in ("sent", "first answer", "second answer", "run", "age of the key"):
        table.add_column(column)
    for number, outcome in enumerate(story.webhooks):
        if len(outcome.documents) > 1:
            one, two = outcome.documents
            table.add_row(
                f"webhook {number}", f"{one['http_status']} {one['status']}", f"{two['http_status']} {two['status']}",
                two["run_id"], f"{two['key_age_seconds']:.3f} s",
            )  # fmt: skip
    return table


def _latency(story: "Story") -> Table:
    table = Table(title="Seconds from acceptance to end", title_justify="left")
    for column in ("workflow", "door", "runs", "p50", "p99"):
        table.add_column(column, justify="left" if column in {"workflow", "door"} else "right")
    groups: dict[tuple[str, str], list[float]] = {}
    for run in story.runs:
        took = _between(run["accepted_at"], run["ended_at"])
        if took is not None:
            groups.setdefault((run["workflow_id"], run["trigger_id"]), []).append(took)
    for (workflow, trigger), times in sorted(groups.items()):
        times.sort()
        table.add_row(workflow, trigger, str(len(times)), f"{_at(times, 0.5):.3f}", f"{_at(times, 0.99):.3f}")
    return table


def _verdict(expectations: Expectations) -> Table:
    table = Table(title="Expectations", title_justify="left")
    for column in ("", "expected", "seen"):
        table.add_column(column, overflow="fold")
    for one in expectations:
        table.add_row("[green]held[/green]" if one.held else "[red]FAILED[/red]", one.text, one.seen)
    return table


def _between(begin: str | None, end: str | None) -> float | None:
    if begin is None or end is None:
        return None
    return (_moment(end) - _moment(begin)).total_seconds()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
