"""`a44 automation webhook`: sign a body without seeing the secret, send it for real, and rotate the secret."""

import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from ops.cli.access import open_client, project_in_use
from ops.cli.failures import OK, exit_code, problem
from ops.cli.options import FileOption, JsonOption, KeyOption, ProjectOption, TriggerOption, read_body
from ops.cli.output import Output, duration, paint, paint_state, printable
from ops.cli.quick import command, new_group
from ops.cli.record_lines import when
from ops.client import Answer, Client, Signed
from schemas.errors import AutomationError

_SEND_EXAMPLE = """\
a44 automation webhook send --trigger trg_erp_sync --file payload.json \\
  --idempotency-key "erp:ord_991:shipped:v1" --repeat 2
1/2  202 run_01J9XQ   created
2/2  200 run_01J9XQ   deduplicated (key age: 0.4s)"""

_SIGNATURE = "A44-Signature"

group = new_group(help="Sign and send webhooks as an outside sender would; rotate their secrets.")


@command(group, "sign", example="a44 automation webhook sign --trigger trg_erp_sync --file payload.json")
def sign(
    trigger: TriggerOption,
    file: FileOption,
    idempotency_key: KeyOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print headers that are valid for a body during the next minutes.

    The service signs as the trigger's sender would; the secret is never shown.
    """
    output = Output(as_json)
    body = read_body("--file", file)
    with open_client(project) as client:
        signed = client.sign(trigger, body, key=idempotency_key)
    if as_json:
        output.document({**signed.headers, "path": signed.path})
        return OK
    for name, value in signed.headers.items():
        output.line(f"{name}: {printable(value)}")
    if idempotency_key is None and _SIGNATURE in signed.headers:
        output.note("A44-Idempotency-Key: (absent: the gateway will make one from the body)")
    return OK


@command(group, "send", example=_SEND_EXAMPLE)
def send(
    trigger: TriggerOption,
    file: FileOption,
    idempotency_key: KeyOption = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=100_000, help="Send it this many times.")] = 1,
    signature: Annotated[
        str | None, typer.Option("--signature", metavar="HEX", help="Send this signature as it is, to see a refusal.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="UNIX", help="Sign and send this time, to see a refusal.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send a file to a webhook and show each decision.

    The exact bytes, signed anew for each try.
    """
    output = Output(as_json)
    body = read_body("--file", file)
    worst = OK
    with open_client(project) as client:
        for number in range(1, repeat + 1):
            if signature is None:
                signed = client.sign(trigger, body, timestamp, idempotency_key)
            else:
                signed = _forged(client, trigger, project, signature, timestamp, idempotency_key)
            try:
                answer = client.deliver(signed, body)
            except AutomationError as error:
                if "status" not in error.details:
                    raise
                _print_refusal(error, number, repeat, output)
                worst = max(worst, exit_code(error))
            else:
                _print_decision(answer, number, repeat, output)
    return worst


@command(group, "rotate", example="a44 automation webhook rotate trg_erp_sync")
def rotate(
    trigger: Annotated[str, typer.Argument(metavar="TRIGGER", help="Webhook trigger, such as trg_erp_sync.")],
    end: Annotated[
        str | None,
        typer.Option(
            "--end",
            metavar="WHICH",
            help="End at once: `old`, all secrets so far (one leaked); `newest`, the last one (nobody got it).",
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make a new secret for a webhook and print it once, on stdout.

    The one before is accepted for another 48 hours.
    """
    output = Output(as_json)
    with open_client(project) as client:
        answer = client.rotate(trigger, end)
    if as_json:
        output.document(answer)
        return OK
    output.line(printable(str(answer.get("secret"))))
    until = answer.get("old_secret_ends_at")
    output.note("the secret is shown this once: keep it where the sender reads it")
    output.note(f"the old one is accepted until {when(until)}" if until else "no other secret is accepted any more")
    return OK


def _forged(
    client: Client, trigger: str, project: str | None, signature: str, timestamp: str | None, key: str | None
) -> Signed:
    """What was given, in the headers of `a44`, instead of the service's signature."""
    path = f"/v1/{quote(project_in_use(client, project), safe='')}/{quote(trigger, safe='')}"
    headers = {"A44-Timestamp": timestamp or str(int(time.time())), _SIGNATURE: signature}
    return Signed(path, headers if key is None else {**headers, "A44-Idempotency-Key": key})


def _print_decision(answer: Answer, number: int, repeat: int, output: Output) -> None:
    document: dict[str, Any] = answer.document
    if output.as_json:
        output.record({"try": number, "of": repeat, "http_status": answer.status, **document})
        return
    status = str(document.get("status"))
    run_id = printable(str(document.get("run_id") or "-"))
    age = document.get("key_age_seconds")
    remark = f" (key age: {duration(age)})" if isinstance(age, int | float) else ""
    output.line(f"{number}/{repeat}  {answer.status} {run_id}   {paint_state(status)}{remark}")


def _print_refusal(error: AutomationError, number: int, repeat: int, output: Output) -> None:
    document = problem(error)
    if output.as_json:
        output.record({"try": number, "of": repeat, "http_status": document["status"], **document})
        return
    code = paint(printable(error.code), "red", sys.stdout)
    output.line(f"{number}/{repeat}  {document['status']} {code}   {printable(error.message)}")
