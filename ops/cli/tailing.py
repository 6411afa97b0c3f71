"""`a44 automation events tail`: a project's events as ingest takes them, each with the runs that it has made."""

import json
from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption
from ops.cli.output import Output, paint_state, printable
from ops.cli.quick import command
from ops.cli.record_lines import when

_EXAMPLE = "a44 automation events tail --type invoice.approved --since 10m"


def tail(
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only events of this type that made a run.")
    ] = None,
    trigger: Annotated[
        str | None, typer.Option("--trigger", metavar="TRIGGER", help="Only events of which this trigger made a run.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="SPAN|TIME", help="Begin with those of before: 10m, or an ISO time."),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="End after so many; without it, with Ctrl-C.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Follow the events of the project as they are taken.

    From doors and from Kafka, as far as their ids are the service's. What an event holds is not shown.
    """
    output = Output(as_json)
    told = {"type": event_type, "trigger": trigger, "since": since}
    with open_client(project) as client:
        if most is None:
            output.note("following the events; Ctrl-C ends it")
        if trigger is not None and trigger not in {row["trigger_id"] for row in client.triggers()}:
            output.note(f"{printable(trigger)} is no trigger that is published; `a44 automation triggers` lists those")
        stream = client.tail({name: text for name, text in told.items() if text})
        for number, event in enumerate((json.loads(sent.data) for sent in stream if sent.kind == "event"), 1):
            if as_json:
                output.record(event)
            else:
                _print(event, output)
            if number == most:
                break
    return OK


def _print(event: dict[str, Any], output: Output) -> None:
    head = f"{when(event.get('accepted_at'))}  {printable(str(event.get('event_id')))}"
    runs = event.get("runs") or []
    if not runs:
        output.line(f"{head}  made no run")
    for run in runs:
        made = f"{printable(str(run.get('run_id')))}  {paint_state(str(run.get('state')))}"
        output.line(f"{head}  {printable(str(event.get('type')))}  {printable(str(run.get('trigger_id')))}  {made}")


def register(group: typer.Typer) -> None:
    command(group, "tail", example=_EXAMPLE)(tail)
