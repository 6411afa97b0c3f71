"""One line of a run's log for a reader."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from ops.cli.output import duration, paint, paint_state, printable

_RUN_RECORD = "~run"
_ANY_EXCEPTION = frozenset({"E_STEP_FAILED", "E_WORKFLOW_FAILED"})


def record_line(record: Mapping[str, Any], stream: TextIO) -> str:
    """Time, step, attempt, outcome, how long it took, and the error where there is one."""
    step = str(record.get("step_id", ""))
    name = "run" if step == _RUN_RECORD else step
    attempt = record.get("attempt")
    which = f"attempt {attempt}" if record.get("kind") == "step" and attempt else str(record.get("kind") or "")
    parts = [
        paint(_clock(record.get("finished_at") or record.get("started_at")), "dim", stream),
        f"{printable(name):<20}",
        f"{printable(which):<10}",
        paint_state(str(record.get("status", "")), stream),
        _took(record),
        _error(record),
    ]
    return "  ".join(part for part in parts if part).rstrip()


def moment(text: Any) -> datetime | None:
    """An ISO-8601 time of the service, or None for what is not one."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def when(text: Any) -> str:
    """A time as a table shows it: to the second, in UTC."""
    at = moment(text)
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""


def _clock(text: Any) -> str:
    at = moment(text)
    return at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}" if at else "--:--:--.---"


def _took(record: Mapping[str, Any]) -> str:
    started, finished = moment(record.get("started_at")), moment(record.get("finished_at"))
    if record.get("kind") != "step" or started is None or finished is None:
        return ""
    return duration((finished - started).total_seconds())


def error_text(code: Any, error: Any) -> str:
    """Code and message, with the exception's own name where the code is the one for any exception."""
    kind, message = (error.get("type"), error.get("message")) if isinstance(error, Mapping) else (None, error)
    name = f"{kind}:" if code in _ANY_EXCEPTION and kind else ""
    return " ".join(printable(str(part)) for part in (code, name, message) if part)


def _error(record: Mapping[str, Any]) -> str:
    code, error = record.get("error_code"), record.get("error")
    if not code:
        return ""
    place = str(error.get("line") or "") if isinstance(error, Mapping) else ""
    text = error_text(code, error)
    return text if not place or place in text else f"{text} ({printable(place)})"
