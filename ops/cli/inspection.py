"""`a44 automation runs`, `show` and `logs`: where runs are, and what happened in them."""

import json
import sys
from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK, RUN_DID_NOT_SUCCEED
from ops.cli.options import JsonOption, ProjectOption, RunArgument
from ops.cli.output import Output, columns, counted, duration, paint_state, printable, text_of
from ops.cli.quick import command
from ops.cli.record_lines import moment, record_line, when
from ops.client import StreamEvent

_TITLES = ("RUN", "WORKFLOW", "VERSION", "STATE", "STEP", "ERROR", "ACCEPTED", "TOOK")


def runs(
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Such as failed or running.")] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Runs that are at this step or failed at it.")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="WORKFLOW", help="Runs of one workflow.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="SPAN|TIME", help="Accepted since: 48h, 7d, or an ISO time.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many to list at most.")] = 50,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """List runs, newest first.

    The total comes first, however many are listed.
    """
    output = Output(as_json)
    wanted = {"state": state, "step": step, "workflow": workflow, "since": since}
    filters = {name: value for name, value in wanted.items() if value is not None}
    with open_client(project) as client:
        found = client.runs(limit=limit, filters=filters)
    if as_json:
        output.document(found)
        return OK
    output.line(counted(found["total"], "run"))
    output.table(_TITLES, [_run_row(row) for row in found["runs"]])
    if found["total"] > len(found["runs"]):
        output.note(f"{len(found['runs'])} of {found['total']} are listed; --limit lists more")
    return OK


_HEAD = (
    ("workflow", "workflow_id"),
    ("version", "version"),
    ("trigger", "trigger_id"),
    ("key", "idempotency_key"),
    ("queue", "queue_id"),
    ("lane", "lane"),
    ("accepted", "accepted_at"),
    ("started", "started_at"),
    ("deadline", "deadline_at"),
    ("ended", "ended_at"),
)


def show(run_id: RunArgument, project: ProjectOption = None, as_json: JsonOption = False) -> int:
    """Show where one run is and why, with its attempts.

    Outcomes marked late came when the run had another owner already: they changed nothing.
    """
    output = Output(as_json)
    with open_client(project) as client:
        answer = client.show(run_id)
    found = answer.document
    if as_json:
        output.document(found, answer.text)
        return OK
    output.line(f"{printable(str(found.get('run_id', run_id)))}  {paint_state(str(found.get('state')))}")
    if found.get("where"):
        output.line(printable(str(found["where"])))
    for title, name in _HEAD:
        if found.get(name) is not None:
            output.line(f"{title:<9} {printable(text_of(found[name]))}")
    for name in ("input", "result", "error"):
        if found.get(name) is not None:
            output.line(f"{name:<9} {printable(text_of(found[name]))}")
    for record in found.get("attempts") or []:
        output.line(record_line(record, sys.stdout))
    for late in found.get("late_attempts") or []:
        output.line(record_line({**late, "kind": "late", "finished_at": late.get("recorded_at")}, sys.stdout))
    return OK


def logs(
    run_id: RunArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the run ends; exit 1 unless it succeeded.")
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print a run's log, one record a line.

    Each attempt with its outcome, timers, and the run's own records.
    """
    output = Output(as_json)
    state: str | None = None
    with open_client(project) as client:
        for event in client.log(run_id, follow=follow):
            document = json.loads(event.data)
            if as_json:
                output.line(_with_kind(event))
            elif event.kind == "record":
                output.line(record_line(document, sys.stdout))
            state = _end_state(event, document) or state
    if state is not None and not as_json:
        output.note(f"{printable(run_id)} {paint_state(state, sys.stderr)}")
    return RUN_DID_NOT_SUCCEED if follow and state != "succeeded" else OK


def _with_kind(event: StreamEvent) -> str:
    """The event's own JSON text with its kind as a first member: no number is read and written again."""
    members = event.data.strip().removeprefix("{").replace("\n", " ")
    return f'{{"event":"{event.kind}"{"" if members.startswith("}") else ","}{members}'


def _end_state(event: StreamEvent, document: dict[str, Any]) -> str | None:
    return str(document.get("state")) if event.kind == "end" else None


def _run_row(row: dict[str, Any]) -> list[str]:
    named = ("run_id", "workflow_id", "version", "state", "current_step", "error_code")
    accepted, ended = moment(row.get("accepted_at")), moment(row.get("ended_at"))
    took = duration((ended - accepted).total_seconds()) if accepted and ended else ""
    return [*columns(row, *named), when(row.get("accepted_at")), took]


def register(group: typer.Typer) -> None:
    command(group, "runs", example="a44 automation runs --state failed --step provision-db --since 48h")(runs)
    command(group, "show", example="a44 automation show run_01J9XQ7M4K")(show)
    command(group, "logs", example="a44 automation logs run_01J9XQ7M4K --follow")(logs)
