"""`a44 automation publish`, `workflows` and `triggers`: what is declared."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption
from ops.cli.output import Output, columns, counted, paint_state, printable
from ops.cli.quick import command
from ops.cli.record_lines import when

_PUBLISH_EXAMPLE = """\
a44 automation publish ./workflows/invoice-settle.yaml
a44 automation publish flows/"""


def publish(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Workflow and topology files, or folders of them.")
    ],
    dev: Annotated[bool, typer.Option("--dev", help="Publish as VERSION-dev.N: no version bump for a change.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check definitions and publish them, all or none.

    A new webhook trigger's secret is shown here once and nowhere else.
    """
    from topology.publication import collect

    output = Output(as_json)
    files = collect([Path(path) for path in paths])
    with open_client(project) as client:
        answer = client.publish(files, dev=dev)
        url = client.url
    for warning in answer.get("warnings", []):
        output.note(f"warning: {printable(str(warning))}")
    if as_json:
        output.document(answer)
    else:
        _print_publication(answer, url, output)
    return OK


def _print_publication(answer: dict[str, Any], url: str, output: Output) -> None:
    for item in answer.get("published", []):
        version = f"  version {item['version']}" if item.get("version") else ""
        what = f"{item.get('kind', ''):<10} {item.get('id', '')}{version}"
        output.line(f"{paint_state(str(item.get('change', 'published'))):<9}  {printable(what)}")
    for hook in answer.get("webhooks", []):
        output.line(
            f"webhook    {printable(str(hook.get('trigger_id')))}  POST {url}{printable(str(hook.get('path')))}"
        )
        if hook.get("secret"):
            output.line(f"           secret {printable(str(hook['secret']))}")
            output.note("the secret is shown this once: keep it where the sender reads it")


def workflows(project: ProjectOption = None, as_json: JsonOption = False) -> int:
    """List the published workflows with their newest version."""
    output = Output(as_json)
    with open_client(project) as client:
        found = client.workflows()
    if as_json:
        output.document(found)
        return OK
    output.line(counted(len(found), "workflow"))
    rows = [[*columns(row, "workflow_id", "version", "kind"), when(row.get("published_at"))] for row in found]
    output.table(("WORKFLOW", "VERSION", "KIND", "PUBLISHED"), rows)
    return OK


def triggers(project: ProjectOption = None, as_json: JsonOption = False) -> int:
    """List the triggers: what starts which workflow."""
    output = Output(as_json)
    with open_client(project) as client:
        found = client.triggers()
    if as_json:
        output.document(found)
        return OK
    output.line(counted(len(found), "trigger"))
    rows = [
        [*columns(row, "trigger_id", "type", "workflow_id", "version"), str(row.get("event") or row.get("path") or "")]
        for row in found
    ]
    output.table(("TRIGGER", "TYPE", "WORKFLOW", "VERSION", "ON"), rows)
    return OK


def register(group: typer.Typer) -> None:
    command(group, "publish", example=_PUBLISH_EXAMPLE)(publish)
    command(group, "workflows", example="a44 automation workflows")(workflows)
    command(group, "triggers", example="a44 automation triggers")(triggers)
