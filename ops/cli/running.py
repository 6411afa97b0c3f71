"""`a44 automation run` and `cancel`: start a run by hand, wait for it, stop it."""

import json
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK, RUN_DID_NOT_SUCCEED
from ops.cli.options import JsonOption, KeyOption, ProjectOption, RunArgument
from ops.cli.output import Output, duration, paint_state, printable
from ops.cli.quick import QuickCommand, command
from ops.cli.record_lines import error_text, record_line
from ops.client import TERMINAL, Answer, Client
from schemas.errors import Refused

_RUN_EXAMPLE = """\
a44 automation run wf_invoice_settle --input '{"invoiceId":"inv_8812"}' \\
  --idempotency-key "manual-inv_8812-2026-07-19" --wait"""
_WITHOUT_END = "end"
_STANDING = frozenset({"blocked", "awaiting_confirmation"})
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MEANT_AS_NUMBER = re.compile(r"[-+.]?\d")  # 5s, -1: no name of a workflow, and no option
_FIRST_WAIT = 2.0  # a short run answers within the request that starts it; a longer one shows its steps


class RunCommand(QuickCommand):
    """`--wait` may stand alone (until the end) or before a number of seconds, which typer cannot express."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        for position, argument in enumerate(args):
            spread.append(argument)
            following = args[position + 1] if position + 1 < len(args) else ""
            if argument == "--wait" and not _MEANT_AS_NUMBER.match(following):
                spread.append(_WITHOUT_END)
        return super().parse_args(ctx, spread)


def run(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Workflow id, such as wf_invoice_settle.")],
    run_input: Annotated[
        str, typer.Option("--input", metavar="JSON|@FILE|-", help="The input: JSON text, a file, or stdin.")
    ] = "{}",
    idempotency_key: KeyOption = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="VERSION", help="A published version; else the newest.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option("--trigger", metavar="TRIGGER", help="A declared manual trigger, where there are several."),
    ] = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="[SECONDS]", help="Wait for the end; exit 1 unless it succeeded.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Start a run by hand.

    The key is required: a repeated command finds the first run again.
    """
    output = Output(as_json)
    if idempotency_key is None:
        raise Refused(
            "E_IDEMPOTENCY_KEY_REQUIRED",
            "no idempotency key was given; expected --idempotency-key with a stable text made from the data, "
            "such as manual-inv_8812-2026-07-19, so that a repeated command does not start a second run",
        )
    limit = _wait_limit(wait)
    until = None if limit is None else time.monotonic() + limit
    text = _read_input(run_input)
    with open_client(project) as client:
        first_wait = None if limit is None else min(limit, _FIRST_WAIT)
        answer = client.run(workflow, text, idempotency_key, version=version, trigger=trigger, wait=first_wait)
        if until is None:
            _print_answer(answer, output)
            return OK
        return _wait_for_end(client, answer, until, output)


def cancel(
    run_id: RunArgument,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Kept in the audit log.")] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Cancel a run that has not ended.

    Steps that already took effect are not undone.
    """
    output = Output(as_json)
    with open_client(project) as client:
        answer = client.cancel(run_id, reason)
    if as_json:
        output.document(answer)
    else:
        output.line(f"{printable(str(answer.get('run_id', run_id)))}  {printable(str(answer.get('status')))}")
    return OK


def _wait_limit(wait: str | None) -> float | None:
    """Seconds to wait; infinity for "until the end", None for not at all."""
    if wait is None:
        return None
    if wait == _WITHOUT_END:
        return float("inf")
    if not _NUMBER.fullmatch(wait):
        raise typer.BadParameter(f"{wait!r} is not a number of seconds, such as 30", param_hint="--wait")
    return float(wait)


def _read_input(given: str) -> str:
    """The input's JSON text, as it was given."""
    try:
        if given == "-":
            text = sys.stdin.read()
        elif given.startswith("@"):
            text = Path(given[1:]).read_text("utf-8")
        else:
            text = given
    except OSError as exc:
        raise Refused("E_INVALID_PARAMETER", f"--input {given}: {exc.strerror}; expected a readable file") from exc
    except UnicodeDecodeError as exc:
        raise Refused("E_JSON_INVALID", f"--input {given} is not UTF-8 text; expected JSON") from exc
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except ValueError as exc:
        raise Refused(
            "E_JSON_INVALID", f'--input is not JSON: {exc}; expected such as \'{{"invoiceId": "inv_8812"}}\''
        ) from exc
    return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _print_answer(answer: Answer, output: Output) -> None:
    document = answer.document
    if output.as_json:
        output.document(document)
        return
    status = str(document.get("status", "created"))
    age = document.get("key_age_seconds")
    remark = f" (key age: {duration(age)})" if isinstance(age, int | float) else ""
    output.line(f"{printable(str(document.get('run_id')))}  {paint_state(status)}{remark}")


def _wait_for_end(client: Client, answer: Answer, until: float, output: Output) -> int:
    """Follow the run to its end or to `until`, or to where only a person can move it; print it as it stands."""
    run_id = str(answer.document.get("run_id"))
    if answer.document.get("state") not in TERMINAL:
        output.note(f"{printable(run_id)} is on its way; waiting for its end (Ctrl-C leaves it running)")
        answer = _follow(client, run_id, until, output)
    elif "input" not in answer.document:
        answer = client.show(run_id)
    document = answer.document
    state = str(document.get("state"))
    if output.as_json:
        output.document(document, answer.text)
    else:
        _print_end(run_id, document, output)
    if state not in TERMINAL | _STANDING:
        output.note(f"not ended in time; follow it with a44 automation logs {printable(run_id)} --follow")
    return OK if state == "succeeded" else RUN_DID_NOT_SUCCEED


def _follow(client: Client, run_id: str, until: float, output: Output) -> Answer:
    """Show the run's records as they are written; answers the run as it stands after the last of them."""
    for event in client.log(run_id, follow=True, until=until):
        if event.kind != "record":
            continue
        record = json.loads(event.data)
        output.note(record_line(record, sys.stderr))
        if record.get("status") in _STANDING:  # it may be an old record of a run that went on since
            answer = client.show(run_id)
            if answer.document.get("state") in _STANDING:
                return answer
    return client.show(run_id)


def _print_end(run_id: str, document: dict[str, Any], output: Output) -> None:
    output.line(f"{printable(run_id)}  {paint_state(str(document.get('state')))}")
    if document.get("where") and document.get("state") != "succeeded":
        output.line(printable(str(document["where"])))
    if document.get("error_code"):
        output.line(f"error   {error_text(document['error_code'], document.get('error'))}")
    if document.get("result") is not None:
        output.line(f"result  {json.dumps(document['result'], ensure_ascii=False)}")


def register(group: typer.Typer) -> None:
    command(group, "run", example=_RUN_EXAMPLE, cls=RunCommand)(run)
    command(group, "cancel", example='a44 automation cancel run_01J9XQ7M4K --reason "ordered twice"')(cancel)
