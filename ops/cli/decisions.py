"""What a door said of one event, as a line: its place, its status, its id and what was decided, or its refusal."""

import sys
from typing import Any

from ops.cli.failures import problem
from ops.cli.output import Output, duration, paint, paint_state, printable
from ops.client import Answer
from schemas.errors import AutomationError


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


def print_refusal(error: AutomationError, number: int, total: int, output: Output) -> None:
    document = problem(error)
    if output.as_json:
        output.record({"event": number, "of": total, "http_status": document["status"], **document})
        return
    code = paint(printable(error.code), "red", sys.stdout)
    output.line(f"{number}/{total}  {document['status']} {code}   {printable(error.message)}")
