"""`a44 automation project`: what projects have set for themselves, and setting it."""

from typing import Annotated, Any

import typer

from ops.cli.access import open_client, project_in_use
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption
from ops.cli.output import Output, counted, printable
from ops.cli.quick import command, new_group
from ops.cli.record_lines import when
from schemas.errors import Refused

_DEFAULT = "default"
_TITLES = ("PROJECT", "DEDUP WINDOW", "EVENTS A SECOND", "REDRIVES A SECOND", "CHANGED")

group = new_group(help="See and set the figures of projects (setting needs the scope automation:operator).")


@command(group, "list", example="a44 automation project list")
def list_projects(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many to list at most.")] = 100,
    as_json: JsonOption = False,
) -> int:
    """List the known projects with their figures.

    Known is what has a token or a workflow. Needs the scope automation:operator.
    """
    output = Output(as_json)
    with open_client() as client:
        found = client.projects(limit=limit)
    if as_json:
        output.document(found)
        return OK
    rows = found["projects"]
    output.line(counted(len(rows), "project") + (", and there are more" if found.get("next") else ""))
    output.table(_TITLES, [_row(row) for row in rows])
    return OK


@command(group, "show", example="a44 automation project show pj_shop")
def show(
    name: Annotated[str | None, typer.Argument(metavar="PROJECT", help="Project; else the token's own.")] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show a project's figures.

    Another project than the token's needs the scope automation:operator.
    """
    output = Output(as_json)
    with open_client(project) as client:
        found = client.project(name or project_in_use(client, project))
    _tell(found, output)
    return OK


@command(
    group, "set", example='a44 automation project set pj_shop --dedup-window-hours 72 --reason "slow partner, INC-2214"'
)
def set_figures(
    name: Annotated[str, typer.Argument(metavar="PROJECT", help="Project, such as pj_shop.")],
    dedup_window_hours: Annotated[
        str | None,
        typer.Option(
            "--dedup-window-hours", metavar="HOURS", help=f"How long a key counts, 72 at most; or {_DEFAULT}."
        ),
    ] = None,
    events_per_second: Annotated[
        str | None,
        typer.Option("--events-per-second", metavar="RATE", help=f"What each gateway takes; or {_DEFAULT}: no limit."),
    ] = None,
    redrive_rate: Annotated[
        str | None,
        typer.Option(
            "--redrive-rate", metavar="RATE", help=f"Letters a second that redrives take together; or {_DEFAULT}."
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept in the audit log.")] = "",
    as_json: JsonOption = False,
) -> int:
    """Set figures of a project; what is not named stays.

    In force at once for keys used from then on, within seconds for rates. Audited. Needs the scope automation:operator.
    """
    output = Output(as_json)
    told = {
        "dedup_window_hours": dedup_window_hours,
        "events_per_second": events_per_second,
        "redrive_rate": redrive_rate,
    }
    fields: dict[str, Any] = {key: _figure(key, text) for key, text in told.items() if text is not None}
    if not fields:
        raise Refused(
            "E_INVALID_PARAMETER",
            "nothing is to be set; expected --dedup-window-hours, --events-per-second or --redrive-rate",
        )
    with open_client() as client:
        found = client.set_project(name, fields | ({"reason": reason} if reason else {}))
    _tell(found, output)
    return OK


def _figure(name: str, text: str) -> float | None:
    """None: what the installation has. The service knows the bounds."""
    if text == _DEFAULT:
        return None
    option = f"--{name.replace('_', '-')}"
    try:
        number = float(text)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is neither a number nor {_DEFAULT}", param_hint=option) from exc
    if number - number != 0:  # neither infinity nor what is no number can be written in JSON
        raise typer.BadParameter(f"{text!r} is no number that can be sent", param_hint=option)
    return number


def _tell(found: dict[str, Any], output: Output) -> None:
    if output.as_json:
        output.document(found)
        return
    output.line(f"project          {printable(str(found.get('project_id')))}")
    own = "its own" if found.get("dedup_window_hours") is not None else "the installation's"
    output.line(f"dedup window     {found['in_force'].get('dedup_window_hours'):g} h  ({own})")
    rate = found.get("events_per_second")
    output.line(f"events a second  {'no limit' if rate is None else f'{rate:g} for each gateway'}")
    if "redrive_rate" in found["in_force"]:
        own = "its own" if found.get("redrive_rate") is not None else "the installation's"
        output.line(f"redrives         {found['in_force']['redrive_rate']:g} letters a second  ({own})")
    if found.get("updated_at"):
        output.line(f"changed          {when(found['updated_at'])}")


def _row(row: dict[str, Any]) -> list[str]:
    window, rate, redrives = row.get("dedup_window_hours"), row.get("events_per_second"), row.get("redrive_rate")
    return [
        str(row.get("project_id")),
        "-" if window is None else f"{window:g} h",
        "-" if rate is None else f"{rate:g}",
        "-" if redrives is None else f"{redrives:g}",
        when(row.get("updated_at")),
    ]
