"""`a44 automation webhook listen`: what a webhook trigger takes is posted on to an address, signed anew.

The project's events are followed, so what is seen is what became a run: refused, filtered and repeated requests are
not. Listening begins with what comes after it; what came while the service was away is caught up. An address that is
away costs its delivery, and says so.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import typer

from ops.cli.access import open_client
from ops.cli.failures import OK
from ops.cli.options import JsonOption, ProjectOption, TriggerOption
from ops.cli.output import Output, printable
from ops.cli.quick import command
from ops.client import Client
from ops.client.exchange import Exchange
from schemas.errors import Refused, Unavailable

_PAUSE = 1.0
_TIMEOUT = 30.0
_EXAMPLE = "a44 automation webhook listen --trigger trg_erp_sync --forward-to http://127.0.0.1:3000/hooks"


def listen(
    trigger: TriggerOption,
    forward_to: Annotated[str, typer.Option("--forward-to", metavar="URL", help="Where each body is posted.")],
    most: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="End after so many; without it, with Ctrl-C.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Post what a webhook takes to another address as well, such as a program on this machine.

    The exact bytes, signed as the trigger's sender would. What is refused, filtered or repeated is not posted.
    """
    output = Output(as_json)
    target = _target(forward_to)
    with open_client(project) as client, closing(target):
        declared = _declared(client, trigger)
        for number, row in enumerate(_taken(client, declared, output), 1):
            told = {"run_id": row["run_id"], **_forward(client, target, declared, row)}
            if as_json:
                output.record(told)
            else:
                output.line(f"{printable(told['run_id'])}  {told.get('http_status') or printable(str(told['reason']))}")
            if number == most:
                break
    return OK


def _target(url: str) -> Exchange:
    try:
        return Exchange(url, _TIMEOUT)
    except Refused as exc:
        raise Refused(
            "E_INVALID_PARAMETER",
            f"--forward-to is {url[:200]!r}; expected an address such as http://127.0.0.1:3000/hooks",
        ) from exc


def _declared(client: Client, trigger: str) -> dict[str, Any]:
    for row in client.triggers():
        if row["trigger_id"] == trigger and row["type"] == "webhook":
            return row
    raise Refused(
        "E_TRIGGER_NOT_FOUND", f"{trigger[:80]!r} is no webhook trigger of this project", details={"status": 404}
    )


def _taken(client: Client, declared: dict[str, Any], output: Output) -> Iterator[dict[str, Any]]:
    """The trigger's runs as they come, each once: of an event that is redriven only the new one."""
    trigger, last_id, is_away = declared["trigger_id"], "", False
    seen: set[str] = set()
    while True:
        try:
            for sent in client.tail({"trigger": trigger}, last_id):
                last_id, is_away = sent.id or last_id, False
                if sent.kind == "begin":
                    output.note(f"listening for {trigger}; Ctrl-C ends it")
                    continue
                event = json.loads(sent.data)
                for run in event["runs"]:
                    if run["trigger_id"] == trigger and run["run_id"] not in seen:
                        seen.add(run["run_id"])
                        yield {**run, "idempotency_key": event["idempotency_key"]}
        except Unavailable as exc:
            if not is_away:
                output.note(exc.message)
            is_away = True
        time.sleep(_PAUSE)


def _forward(client: Client, target: Exchange, declared: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """What became of it: the status of the other side, or why there is none."""
    import msgspec

    document = msgspec.json.decode(client.show(row["run_id"]).text, type=dict[str, msgspec.Raw])
    body = bytes(document["input"])
    if _is_reference(body):
        return {"reason": "its body lies in storage, and is not posted on"}
    headers = client.sign(declared["trigger_id"], body, key=_key(declared, row)).headers
    try:
        reply = target.send("POST", "", body, {"Content-Type": "application/json", **headers})
    except Unavailable as exc:
        return {"reason": exc.message.partition(";")[0]}
    return {"http_status": reply.status}


def _is_reference(body: bytes) -> bool:
    """Whether a large body's place in storage stands there instead of it."""
    value = json.loads(body)
    return isinstance(value, dict) and set(value) == {"data_ref", "data_size", "data_sha256"}


def _key(declared: dict[str, Any], row: dict[str, Any]) -> str | None:
    """The key or the delivery's id as it came; None where it is in the body, or follows from it."""
    key, trigger = str(row["idempotency_key"]), declared["trigger_id"]
    if declared.get("verify") in ("stripe", "slack") or key.startswith(f"body:{trigger}:"):
        return None
    return key if declared.get("verify", "a44") == "a44" else key.removeprefix(f"{trigger}:")


def register(group: typer.Typer) -> None:
    command(group, "listen", example=_EXAMPLE)(listen)
