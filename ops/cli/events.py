"""`a44 automation events`: publish one event, or a file of them, and show the decision on each."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from ops.cli.access import open_client
from ops.cli.decisions import print_decision
from ops.cli.event_files import Event, Sending, events_of, parsed, text_of
from ops.cli.failures import OK
from ops.cli.options import JsonOption, KeyOption, ProjectOption
from ops.cli.output import Output
from ops.cli.quick import command, new_group
from schemas.errors import Refused

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
    first: Annotated[
        int,
        typer.Option("--from", metavar="NUMBER", min=1, help="The first event of the file to send; all by default."),
    ] = 1,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Publish one event, or each line of a file.

    A file is checked as a whole, then sent in batches; what the service has no time for is sent again. Sent once more,
    it makes nothing twice: used keys are answered so.
    """
    output = Output(as_json)
    own = {"type": event_type, "idempotency_key": idempotency_key, "partition_key": partition_key}
    own["occurred_at"] = occurred_at
    events = [Event(1, _one(own, data).encode())] if file is None else _of_file(file, own, data)
    if not 1 <= first <= len(events):
        raise Refused("E_INVALID_PARAMETER", f"--from is {first}; expected the number of an event, 1 to {len(events)}")
    with open_client(project) as client:
        if file is not None:
            return Sending(client, output, len(events)).send(events[first - 1 :])
        print_decision(client.send_event(events[0].body), 1, 1, output)
    return OK


def _of_file(file: str, own: dict[str, str | None], data: str) -> Sequence[Event]:
    if data != "{}" or any(value is not None for value in own.values()):
        raise Refused(
            "E_INVALID_PARAMETER", "--file holds whole events; expected no other option that says what one is"
        )
    return events_of(file)


def _one(fields: dict[str, str | None], data: str) -> str:
    """The event of the options; its data is put in as it was typed, so that no digit is lost."""
    if fields["type"] is None:
        raise Refused("E_INVALID_PARAMETER", "no event was given; expected --type and --data, or --file with events")
    if data == "-" or data.startswith("@"):
        data = text_of("--data", data.removeprefix("@"))
    parsed(data, "--data")
    told = json.dumps({name: value for name, value in fields.items() if value is not None}, ensure_ascii=False)
    return f'{told.removesuffix("}")}, "data": {data}}}'
