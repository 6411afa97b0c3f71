"""What a failed command says and with which code it ends.

A person gets the code, what was seen, what was expected and the way out; with `--json` the same as one
problem object on stderr. The exit codes are part of the product's interface.
"""

import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from ops.cli.output import paint, printable
from schemas.errors import AutomationError, Broken, Unavailable, code_of

OK = 0
RUN_DID_NOT_SUCCEED = 1
CHECK_FAILED = 1
USAGE = 2
REFUSED = 3
NOT_FOUND = 4
UNAVAILABLE = 5
DEFECT = 70
INTERRUPTED = 130
CLOSED_PIPE = 141

EXIT_CODES = """\
Exit codes:
  0    done
  1    the run did not succeed, or not in time (run --wait, logs --follow); a check failed (doctor, topology)
  2    wrong use: arguments, settings, credentials or files; nothing was sent
  3    refused by the service (4xx), with its E_ code
  4    not found
  5    the service cannot be reached or failed (5xx); the same call may work later
  70   a defect of this command
  130  interrupted (Ctrl-C)
  141  the reader of stdout went away, as head does"""

_HTTP_NOT_FOUND = 404
_HTTP_SERVER_FAULT = 500
_REFUSED_HERE_TOO = frozenset({"E_IDEMPOTENCY_KEY_REQUIRED"})
_FIELDS = frozenset({"type", "title", "status", "errors", "place", "file", "line", "column", "setting"})


def exit_code(error: AutomationError) -> int:
    """An error that the service answered carries its HTTP status; any other was found here."""
    answered = error.details.get("status")
    if isinstance(error, Unavailable):
        return UNAVAILABLE
    if not isinstance(answered, int):
        if isinstance(error, Broken):
            return DEFECT
        if status_of(error) >= _HTTP_SERVER_FAULT:
            return UNAVAILABLE
        return REFUSED if error.code in _REFUSED_HERE_TOO else USAGE
    if answered == _HTTP_NOT_FOUND:
        return NOT_FOUND
    return UNAVAILABLE if answered >= _HTTP_SERVER_FAULT else REFUSED


def status_of(error: AutomationError) -> int:
    """The HTTP status; for a code that a newer service invented, what its answer carried."""
    answered = error.details.get("status")
    if isinstance(answered, int):
        return answered
    return code_of(error.code).status


def problem(error: AutomationError) -> dict[str, Any]:
    """The error as a problem document."""
    try:
        title = code_of(error.code).title
    except KeyError:
        title = str(error.details.get("title", error.code))
    document: dict[str, Any] = {
        "type": f"/errors/{error.code}",
        "title": title,
        "status": status_of(error),
        "detail": error.message,
        "code": error.code,
    }
    if error.place is not None:
        document |= {"file": error.place.file, "line": error.place.line, "column": error.place.column}
    return {**error.details, **document}


def report(error: AutomationError, *, as_json: bool) -> None:
    """Say what went wrong, on stderr."""
    document = problem(error)
    if as_json:
        sys.stderr.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")
        return
    listed = document.get("errors")
    lines = [f"{paint(printable(error.code), 'red', sys.stderr)}  {printable(str(document['title']))}"]
    if isinstance(listed, list) and listed:
        lines += [f"  {_listed(item)}" for item in listed]
    else:
        lines.append(f"  {_place(document)}{printable(error.message)}")
    lines += [f"  {name}: {printable(str(value))}" for name, value in _extra(error.details)]
    sys.stderr.write("\n".join(lines) + "\n")


def report_defect(error: Exception, *, as_json: bool) -> None:
    """A defect of this command: the traceback is for the people who mend it."""
    traceback.print_exception(error, file=sys.stderr)
    report(Broken("E_INTERNAL", f"a defect of this command: {type(error).__name__}: {error}"), as_json=as_json)


def _listed(item: object) -> str:
    if not isinstance(item, Mapping):
        return printable(str(item))
    code = f" [{printable(str(item['code']))}]" if item.get("code") else ""
    message = item.get("message") or item.get("detail") or ""
    return f"{_place(item)}{printable(str(message))}{code}"


def _place(item: Mapping[str, Any]) -> str:
    """File, line and column, whether they stand in the document or in its member `place`."""
    place = item.get("place")
    held = place if isinstance(place, Mapping) else item
    if not held.get("file"):
        return ""
    return printable(":".join(str(held[name]) for name in ("file", "line", "column") if held.get(name))) + ": "


def _extra(details: Mapping[str, object]) -> list[tuple[str, object]]:
    return [(name, value) for name, value in details.items() if name not in _FIELDS and value not in (None, "")]
