"""`a44 automation events types`: the event types that are declared, and the schema of one."""

import json
from typing import Annotated

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption
from ops.cli.output import Output, columns, counted, printable
from ops.cli.quick import command

_EXAMPLE = """\
a44 automation events types
a44 automation events types order.paid"""


def types(
    name: Annotated[str | None, typer.Argument(metavar="TYPE", help="Show this one with its schema.")] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the event types that are declared, or show the schema of one."""
    output = Output(as_json)
    with open_client(project) as client:
        found = client.event_types() if name is None else client.event_type(name)
    if as_json:
        output.document(found)
        return OK
    if isinstance(found, dict):
        told = columns(found, "event_type", "version", "words", "compatibility")
        output.line("{}, version {}: {}, compatibility {}".format(*told))
        for line in json.dumps(found.get("schema"), indent=2, ensure_ascii=False).splitlines():
            output.line(printable(line))
        return OK
    output.line(counted(len(found), "event type"))
    rows = [columns(row, "event_type", "version", "words", "compatibility") for row in found]
    output.table(("TYPE", "VERSION", "WORDS", "COMPATIBILITY"), rows)
    return OK


def register(group: typer.Typer) -> None:
    command(group, "types", example=_EXAMPLE)(types)
