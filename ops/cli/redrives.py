"""`a44 automation dlq redrives` and `dlq stop`: orders to redrive with their progress, and ending one half way."""

from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption
from ops.cli.output import Output, columns, counted, paint_state, printable
from ops.cli.record_lines import when

_TITLES = ("REDRIVE", "QUEUE", "STATE", "DONE", "RATE", "OPERATOR", "REASON", "CREATED")


def redrives(
    under_way: Annotated[bool, typer.Option("--under-way", help="Only those that have not ended.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many to list at most.")] = 50,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the orders to redrive, newest first.

    DONE is how many letters have run again, of how many; letters that could not are free for another order.
    """
    output = Output(as_json)
    with open_client(project) as client:
        found = client.redrives(limit=limit, filters={"under_way": "true"} if under_way else {})
    if as_json:
        output.document(found)
        return OK
    orders = found["redrives"]
    output.table(_TITLES, [_row(row) for row in orders])
    if not orders:
        output.note("no redrives are under way" if under_way else "no redrives")
    elif found.get("next"):
        output.note(f"{len(orders)} are listed and there are more; --limit lists more")
    return OK


def stop(
    redrive: Annotated[str, typer.Argument(metavar="REDRIVE", help="Id of the order, such as rdv_01M8MJ0Q4R...")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept in the audit log with your token's id.")
    ] = "",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Stop a redrive half way.

    What has run again stays; the letters behind it are free for another order. Stopped twice, nothing more happens.
    """
    output = Output(as_json)
    with open_client(project) as client:
        found = client.stop_redrive(redrive, reason)
    if as_json:
        output.document(found)
        return OK
    state, done = str(found.get("state")), found.get("redriven", 0)
    output.line(f"{printable(str(found.get('redrive_id', redrive)))}  {paint_state(state)}: {_done(found)}")
    left = found.get("letters", 0) - done - found.get("refused", 0)
    if state == "stopped" and left:
        output.note(f"{counted(left, 'letter')} wait in the dead letters as before")
    if state == "done":
        output.note("it had ended by itself; nothing was left to stop")
    return OK


def _done(found: dict[str, Any]) -> str:
    refused = found.get("refused")
    return f"{found.get('redriven', 0)} of {found.get('letters', 0)}" + (f", {refused} could not" if refused else "")


def _row(row: dict[str, Any]) -> list[str]:
    named = columns(row, "redrive_id", "queue_id")
    rate = f"{row.get('rate', 0):g}/s"
    return [
        *named,
        paint_state(str(row.get("state"))),
        _done(row),
        rate,
        *columns(row, "operator", "reason"),
        when(row.get("created_at")),
    ]
