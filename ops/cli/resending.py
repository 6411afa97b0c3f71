"""`a44 automation events resend`: what a run was made of goes through its door again, under a new key.

The data is cut out of the run's document as it stands there, so that no number is read and written on its way.
"""

import json
import re

import typer

from ops.cli.access import open_client
from ops.cli.decisions import print_decision
from ops.cli.failures import OK
from ops.cli.options import JsonOption, KeyOption, ProjectOption, RunArgument
from ops.cli.output import Output
from ops.cli.quick import command
from ops.client import Answer, Client
from schemas.errors import Refused

_SPACE = re.compile(r"[ \t\r\n]*")
_REFERENCE = frozenset({"data_ref", "data_size", "data_sha256"})
_EXAMPLE = 'a44 automation events resend run_01J9XQ7M4K --idempotency-key "order:ord_991:paid:v2"'


def resend(
    run_id: RunArgument, idempotency_key: KeyOption = None, project: ProjectOption = None, as_json: JsonOption = False
) -> int:
    """Send what a run was made of once more, as a new event with a key of its own.

    An event is published again, for every trigger of its type; a webhook is signed and sent to its trigger; a run by
    hand is started again. The run itself is not touched.
    """
    output = Output(as_json)
    if idempotency_key is None:
        raise Refused(
            "E_IDEMPOTENCY_KEY_REQUIRED",
            "no idempotency key was given; expected --idempotency-key with a new text: with the run's own key the "
            "answer would be the run that there is",
        )
    with open_client(project) as client:
        shown = client.show(run_id)
        data = _data(shown)
        run = shown.document
        kind = str(run.get("event_type", "")).partition(".")[0]
        if kind == "webhook":
            signed = client.sign(str(run["trigger_id"]), data.encode(), key=idempotency_key)
            answer = client.deliver(signed, data.encode())
        elif kind == "manual":
            answer = client.run(str(run["workflow_id"]), data, idempotency_key)
        else:
            answer = _published(client, shown, data, idempotency_key)
    print_decision(answer, 1, 1, output)
    return OK


def _published(client: Client, shown: Answer, data: str, key: str) -> Answer:
    """Of the same lane as the first, and told to belong together with it."""
    run = shown.document
    fields = {"type": run["event_type"], "idempotency_key": key}
    if run.get("partition_key") not in (None, run.get("idempotency_key")):
        fields["partition_key"] = run["partition_key"]
    fields["correlation_id"] = run.get("correlation_id") or run["event_id"]
    told = json.dumps(fields, ensure_ascii=False).removesuffix("}")
    return client.send_event(f'{told}, "data": {data}}}'.encode())


def _data(shown: Answer) -> str:
    """The run's input as text. Raises `E_INVALID_PARAMETER` where the run does not hold it."""
    run = shown.document
    text = member_text(shown.text, "input") if "input" in run else None
    if text is None:
        raise Refused("E_INVALID_PARAMETER", f"{run.get('run_id')} is accepted and not made yet; try again when it is")
    held = run["input"]
    if isinstance(held, dict) and frozenset(held) == _REFERENCE:
        raise Refused(
            "E_INVALID_PARAMETER",
            f"the data of {run.get('run_id')} ({held['data_size']} bytes) lies in storage; "
            "send it again from where it came",
        )
    return text


def member_text(text: str, name: str) -> str | None:
    """The JSON text of a member of the object that `text` is; None where it has none of this name."""
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    while True:
        at = _after_space(text, at)
        if text[at] == "}":
            return None
        found, at = decoder.raw_decode(text, at)
        start = _after_space(text, _after_space(text, at) + 1)  # behind the colon
        _, at = decoder.raw_decode(text, start)
        if found == name:
            return text[start:at]
        at = _after_space(text, at)
        at += text[at] == ","


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def register(group: typer.Typer) -> None:
    command(group, "resend", example=_EXAMPLE)(resend)
