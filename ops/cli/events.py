"""`a44 automation events`: publish one event, or a file of them, and show the decision on each."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK, exit_code, problem
from ops.cli.options import JsonOption, KeyOption, ProjectOption, read_body
from ops.cli.output import Output, duration, paint, paint_state, printable
from ops.cli.quick import command, new_group
from ops.client import Answer
from schemas.errors import AutomationError, Refused, Unavailable

_SEND_EXAMPLE = """\
a44 automation events send --type customer.signed_up --data '{"name":"Ana"}' \\
  --idempotency-key "signup:ana@example.com:v1"
a44 automation events send --file events.ndjson"""

group = new_group(help="Publish events, one or a file of them.")


@command(group, "send", example=_SEND_EXAMPLE)
def send(
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="What happened, such as customer.signed_up.")
    ] = None,
    data: Annotated[
        str, typer.Option("--data", metavar="JSON|@FILE|-", help="Its data: JSON text, a file, or stdin.")
    ] = "{}",
    idempotency_key: KeyOption = None,
    partition_key: Annotated[
        str | None, typer.Option("--partition-key", metavar="KEY", help="What keeps its order; else the key.")
    ] = None,
    occurred_at: Annotated[
        str | None, typer.Option("--occurred-at", metavar="TIME", help="When it happened, in ISO 8601; else now.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", metavar="FILE", help="Events as the API takes them, one JSON object a line; - is stdin."
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Publish one event, or each line of a file.

    A file is checked as a whole before anything is sent. Sent again, it makes nothing twice: used keys are answered so.
    """
    output = Output(as_json)
    own = {"type": event_type, "idempotency_key": idempotency_key, "partition_key": partition_key}
    own["occurred_at"] = occurred_at
    bodies = _of_file(file, own, data) if file is not None else [_one(own, data)]
    worst = OK
    with open_client(project) as client:
        for number, body in enumerate(bodies, 1):
            try:
                answer = client.send_event(body.encode())
            except Unavailable as error:
                if number > 1:
                    output.note(f"{number - 1} of {len(bodies)} were sent; send the file again: used keys make nothing")
                raise error from error.__cause__
            except AutomationError as error:
                if "status" not in error.details:
                    raise
                _print_refusal(error, number, len(bodies), output)
                worst = max(worst, exit_code(error))
            else:
                print_decision(answer, number, len(bodies), output)
    return worst


def _one(fields: dict[str, str | None], data: str) -> str:
    """The event of the options; its data is put in as it was typed, so that no digit is lost."""
    if fields["type"] is None:
        raise Refused("E_INVALID_PARAMETER", "no event was given; expected --type and --data, or --file with events")
    if data == "-" or data.startswith("@"):
        data = _text("--data", data.removeprefix("@"))
    _parsed(data, "--data")
    told = json.dumps({name: value for name, value in fields.items() if value is not None}, ensure_ascii=False)
    return f'{told.removesuffix("}")}, "data": {data}}}'


def _of_file(file: str, fields: dict[str, str | None], data: str) -> Sequence[str]:
    """Its events, each as it stands there. Raises E_JSON_INVALID with every line that is none."""
    if data != "{}" or any(value is not None for value in fields.values()):
        raise Refused(
            "E_INVALID_PARAMETER", "--file holds whole events; expected no other option that says what one is"
        )
    text = _text("--file", file)
    if _is_event(text):
        return [text]
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    faults = [
        {"code": "E_JSON_INVALID", "message": fault, "file": file, "line": at}
        for at, line in lines
        for fault in _faults(line)
    ]
    if faults or not lines:
        message = f"{len(faults)} lines are no events" if faults else f"--file {file} holds no event"
        raise Refused(
            "E_JSON_INVALID", f"{message}; expected one object a line, with type and data", details={"errors": faults}
        )
    return [line for _, line in lines]


def _faults(line: str) -> Iterator[str]:
    try:
        event = _parsed(line, "the line")
    except Refused as refused:
        yield refused.message
        return
    if not isinstance(event, dict):
        yield f"{type(event).__name__} where an object was expected"
        return
    missing = [name for name in ("type", "data") if name not in event]
    if missing:
        yield f"an event without {' and '.join(missing)}"


def _is_event(text: str) -> bool:
    """Whether the whole text is one object, however many lines it has."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise Refused("E_JSON_INVALID", f"{what} is not JSON: {exc}") from exc


def _text(option: str, file: str) -> str:
    try:
        return read_body(option, file).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Refused("E_JSON_INVALID", f"{option} {file} is not UTF-8 text; expected JSON") from exc


def print_decision(answer: Answer, number: int, total: int, output: Output) -> None:
    document: dict[str, Any] = answer.document
    if output.as_json:
        output.record({"event": number, "of": total, "http_status": answer.status, **document})
        return
    age = document.get("key_age_seconds")
    remark = f" (key age: {duration(age)})" if isinstance(age, int | float) else ""
    status = paint_state(str(document.get("status")))
    output.line(
        f"{number}/{total}  {answer.status} {printable(str(document.get('event_id') or '-'))}   {status}{remark}"
    )


def _print_refusal(error: AutomationError, number: int, total: int, output: Output) -> None:
    document = problem(error)
    if output.as_json:
        output.record({"event": number, "of": total, "http_status": document["status"], **document})
        return
    code = paint(printable(error.code), "red", sys.stdout)
    output.line(f"{number}/{total}  {document['status']} {code}   {printable(error.message)}")
