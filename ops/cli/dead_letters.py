"""`a44 automation dlq`: what failed for good, counted, listed, one at a time with its attempts, and run again."""

import sys
from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption
from ops.cli.output import Output, columns, counted, duration, printable, text_of
from ops.cli.quick import command, new_group
from ops.cli.record_lines import record_line, when
from ops.cli.redrives import redrives, stop

group = new_group(help="Dead letters: what failed for good, and what it was made of.")

_CODES = ("ERROR", "REASON", "COUNT", "REDRIVEN", "OLDEST", "NEWEST")
_LETTERS = ("LETTER", "QUEUE", "ERROR", "REASON", "RUN", "CREATED", "REDRIVEN AS")
_HEAD = (
    ("queue", "queue_id"),
    ("run", "run_id"),
    ("reason", "reason"),
    ("error", "error_code"),
    ("workflow", "workflow_id"),
    ("trigger", "trigger_id"),
    ("redrives", "redrive_count"),
    ("created", "created_at"),
    ("topic", "source_topic"),
    ("partition", "source_partition"),
    ("offset", "source_offset"),
    ("order", "redrive_id"),
    ("became", "redriven_as"),
    ("envelope", "envelope"),
    ("raw", "raw"),
)

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Queue id, such as q_invoice_settle; `ingest` holds refused records.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="SPAN|TIME", help="Died since: 24h, 7d, or an ISO time.")
]
UnownedOption = Annotated[
    bool, typer.Option("--unowned", help="Those that belong to no project (for operators: automation:operator).")
]


def stats(
    queue: QueueArgument,
    since: SinceOption = None,
    unowned: UnownedOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Count the dead letters of a queue by their error code.

    The most frequent code comes first.
    """
    output = Output(as_json)
    with open_client(project) as client:
        found = client.dead_letter_stats(_query(queue=queue, since=since, unowned=unowned))
    if as_json:
        output.document(found)
        return OK
    span = f" since {printable(since)}" if since else ""
    output.line(f"{counted(found.get('total', 0), 'dead letter')} in {printable(queue)}{span}")
    output.table(_CODES, [_code_row(row) for row in found.get("codes", [])])
    return OK


def list_letters(
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Those of one queue.")] = None,
    error_code: Annotated[
        str | None, typer.Option("--error-code", metavar="CODE", help="Those of one code, such as E_UPSTREAM_503.")
    ] = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many to list at most.")] = 50,
    unowned: UnownedOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """List dead letters, newest first."""
    output = Output(as_json)
    filters = _query(queue=queue, error_code=error_code, since=since, unowned=unowned)
    with open_client(project) as client:
        found = client.dead_letters(limit=limit, filters=filters)
    if as_json:
        output.document(found)
        return OK
    letters = found["dead_letters"]
    output.table(_LETTERS, [_letter_row(row) for row in letters])
    if not letters:
        output.note("no dead letters")
    elif found.get("next"):
        output.note(f"{len(letters)} are listed and there are more; --limit lists more")
    return OK


def show(
    letter: Annotated[str, typer.Argument(metavar="LETTER", help="Dead letter id, such as dlq_01J9YB2C...")],
    with_attempts: Annotated[
        bool, typer.Option("--with-attempts", help="With the records of its run, newest last.")
    ] = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="With the envelope or the raw bytes; needs automation:dead-letters, is audited."),
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show one dead letter.

    Code and sentence say why it died; what the sender wrote is shown with --whole only.
    """
    output = Output(as_json)
    with open_client(project) as client:
        answer = client.dead_letter(letter, _query(attempts=with_attempts, whole=whole))
    found = answer.document
    if as_json:
        output.document(found, answer.text)
        return OK
    output.line(printable(str(found.get("dead_letter_id", letter))))
    output.line(printable(str(found.get("summary", ""))))
    for title, name in _HEAD:
        if found.get(name) is not None:
            output.line(f"{title:<9} {printable(text_of(found[name]))}")
    _print_record(output, found)
    if found.get("raw") is not None:
        output.note("raw, key and headers are in base64")
    for record in found.get("attempts") or []:
        output.line(record_line(record, sys.stdout))
    for late in found.get("late_attempts") or []:
        output.line(record_line({**late, "kind": "late", "finished_at": late.get("recorded_at")}, sys.stdout))
    return OK


def _print_record(output: Output, found: dict[str, Any]) -> None:
    """What the record came with: hidden but for what says of which kind it is, or all of it in base64."""
    record = found.get("record") or {}
    key = found.get("raw_key", record.get("key"))
    if key is not None:
        output.line(f"{'key':<9} {printable(str(key))}")
    for name, value in found.get("raw_headers") or [(one["name"], one["value"]) for one in record.get("headers", [])]:
        output.line(f"{'header':<9} {printable(f'{name}: {text_of(value)}')}")
    if record.get("left_out"):
        output.note(f"{record['left_out']} of key and headers were too large to keep")


def redrive(
    queue: QueueArgument,
    letter_filter: Annotated[
        str, typer.Option("--filter", metavar="CEL", help="Which letters, such as error_code == 'E_UPSTREAM_503'.")
    ],
    most: Annotated[int, typer.Option("--max", min=1, max=50_000, help="How many letters at most, the oldest first.")],
    rate: Annotated[
        str, typer.Option("--rate", metavar="RATE", help="How fast: 20/s, 90/m or 500/h. The service keeps the pace.")
    ] = "10/s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be redriven, and what not.")] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept in the audit log with your token's id.")
    ] = "",
    allow_stale: Annotated[
        bool, typer.Option("--allow-stale", help="Also letters that died because their event was too old.")
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run dead letters again, each as a new run.

    The next version of the operation: keys that steps use are new ones, and effects that happened happen again.
    """
    output = Output(as_json)
    fields = {"queue": queue, "filter": letter_filter, "max": most, "rate": rate, "reason": reason}
    with open_client(project) as client:
        found = client.redrive({**fields, "dry_run": dry_run, "allow_stale": allow_stale})
    if as_json:
        output.document(found)
        return OK
    letters = counted(found.get("letters", 0), "letter")
    pace = f"{found.get('rate', 0):g} a second, {duration(found.get('seconds', 0))}"
    if dry_run:
        output.line(f"{letters} of {printable(queue)} would be redriven: {pace}")
    else:
        output.line(f"{printable(str(found.get('redrive_id')))}  {letters} of {printable(queue)}: {pace}")
    _tell_rest(output, found)
    return OK


def _tell_rest(output: Output, found: dict[str, Any]) -> None:
    examples = found.get("examples", [])
    if 0 < len(examples) < found.get("letters", 0):
        output.note("the first of them:")
    for letter in examples:
        output.line(f"  {printable(str(letter))}")
    if found.get("left"):
        output.note(f"{found['left']} more match; --max takes more")
    for cause, count in sorted(found.get("skipped", {}).items()):
        output.note(f"{count} skipped: {printable(cause.replace('_', ' '))}")
    for warning in found.get("warnings", []):
        output.note(f"warning: {printable(str(warning))}")


def _query(**told: str | bool | None) -> dict[str, str]:
    """What was given, as parameters; a flag that is not set is left out."""
    return {name: "true" if value is True else str(value) for name, value in told.items() if value}


def _code_row(row: dict[str, Any]) -> list[str]:
    return [
        *columns(row, "error_code", "reason", "count", "redriven"),
        when(row.get("oldest")),
        when(row.get("newest")),
    ]


def _letter_row(row: dict[str, Any]) -> list[str]:
    named = ("dead_letter_id", "queue_id", "error_code", "reason", "run_id")
    return [*columns(row, *named), when(row.get("created_at")), *columns(row, "redriven_as")]


command(group, "stats", example="a44 automation dlq stats q_invoice_settle --since 24h")(stats)
command(group, "list", example="a44 automation dlq list --queue q_invoice_settle --since 24h")(list_letters)
command(group, "show", example="a44 automation dlq show dlq_01J9YB2C --with-attempts")(show)
command(
    group,
    "redrive",
    example="a44 automation dlq redrive q_invoice_settle --filter \"error_code == 'E_UPSTREAM_503'\" \\\n"
    "    --rate 20/s --max 5000",
)(redrive)
command(group, "redrives", example="a44 automation dlq redrives --under-way")(redrives)
command(group, "stop", example='a44 automation dlq stop rdv_01M8MJ0Q4R --reason "the partner is away again"')(stop)
