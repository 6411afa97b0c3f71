"""`a44 automation trigger`: which triggers would take an event, and what a filter let pass by."""

from typing import Annotated

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption, read_body
from ops.cli.output import Output, columns, counted, printable
from ops.cli.quick import command, new_group
from ops.cli.record_lines import when

group = new_group(help="Try triggers on an event, and see what their filters let pass by.")


@command(group, "misses", example="a44 automation trigger misses trg_refund_large")
def misses(
    trigger: Annotated[str, typer.Argument(metavar="TRIGGER", help="Trigger, such as trg_refund_large.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="How many to list at most.")] = 50,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the events that a trigger's filter let pass by.

    Of triggers with dropOnFilterMiss: false, for seven days, the newest first.
    """
    output = Output(as_json)
    with open_client(project) as client:
        found = client.misses(trigger, limit)
    if as_json:
        output.document(found)
        return OK
    output.line(counted(len(found), "event"))
    rows = [[*columns(row, "event_id", "event_type", "idempotency_key"), when(row.get("missed_at"))] for row in found]
    output.table(("EVENT", "TYPE", "KEY", "MISSED"), rows)
    return OK


@command(group, "test", example="a44 automation trigger test --event event.json")
def try_event(
    event: Annotated[
        str,
        typer.Option("--event", metavar="FILE", help="JSON with `type` and `data`, or a whole envelope; - is stdin."),
    ],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say which triggers would start a run for an event, and why the others would not.

    Nothing is accepted and nothing starts.
    """
    output = Output(as_json)
    body = read_body("--event", event)
    with open_client(project) as client:
        found = client.test_triggers(body)
    if as_json:
        output.document(found)
        return OK
    rows = found["triggers"]
    fires = sum(bool(row.get("fires")) for row in rows)
    output.line(f"{fires} of {len(rows)} triggers start a run for {printable(str(found.get('event_type')))}")
    schema = found.get("schema")
    if schema is not None:
        fits = "fits" if schema.get("fits") else f"does not fit, at {schema.get('path') or 'its top'},"
        output.line(printable(f"its data {fits} version {schema.get('version')} of the schema of its type"))
    told = [
        [
            "yes" if row.get("fires") else "no",
            *columns(row, "trigger_id", "workflow_id", "version"),
            f"{row.get('why')} [{row['code']}]" if row.get("code") else str(row.get("why")),
        ]
        for row in rows
    ]
    output.table(("FIRES", "TRIGGER", "WORKFLOW", "VERSION", "WHY"), told)
    return OK
