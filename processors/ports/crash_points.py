"""Places where a test may kill this process, by name. Inert unless the environment arms one.

`A44_CRASH_POINT` is a name of `CRASH_POINTS`, or `name:n` for the n-th time that it is reached. `A44_CRASH_MARK`, where
set, is a file without which nothing happens; it is removed first, so that a process that is started again goes on.
With the point `marked` the text in that file is the name. The end is SIGKILL: no handler, no buffer, no goodbye.
"""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from schemas.errors import Refused

CRASH_POINTS = {
    "after_statements_before_commit": "the statements of a transaction have run on the server; no COMMIT was sent",
    "after_db_write_before_publish": "a door has committed an event; nobody was woken and nobody was answered",
    "after_read_before_publish": "the relay has rows in its hands; none was sent",
    "after_publish_before_mark": "the broker has acknowledged a batch; the relay's cursor is where it was",
    "after_poll_before_commit": "ingest has matched a poll; nothing of it is in Postgres",
    "after_commit_before_ack": "ingest has committed a poll; Kafka was not told the offsets",
    "after_claim": "an executor owns runs that it has not begun",
    "after_step_before_append": "an attempt has an outcome; its record was not sent",
    "after_append_before_next": "the record is committed; the body has not heard of it",
    "after_release_before_goodbye": "an executor that stops has given its runs back; it has left no group yet",
    "after_regrant_before_hint": "the runs of a dead session are granted again; nobody was told",
    "after_wake_before_grant": "timers have fired in Postgres; the runs that they woke have no slot yet",
    "in_migration_before_commit": "a migration has run and is written down; it was not committed",
}

MARKED = "marked"
_FORM = re.compile(r"([a-z_]+)(?::([1-9][0-9]*))?")


def read(environment: Mapping[str, str]) -> tuple[str, int, Path | None]:
    """Name, how often, mark. Raises E_CONFIG where the environment arms what is not there."""
    text = environment.get("A44_CRASH_POINT", "")
    mark = Path(environment["A44_CRASH_MARK"]) if environment.get("A44_CRASH_MARK") else None
    if not text:
        return "", 0, None
    form = _FORM.fullmatch(text)
    if form is None or form[1] not in ({*CRASH_POINTS} | ({MARKED} if mark else set())):
        raise Refused(
            "E_CONFIG",
            f"A44_CRASH_POINT is {text!r}; expected one of {', '.join(CRASH_POINTS)}, or one with a number as in "
            f"after_claim:2, or {MARKED} beside A44_CRASH_MARK. Unset it where nothing is to be killed",
            details={"setting": "A44_CRASH_POINT"},
        )
    return form[1], int(form[2] or 1), mark


try:
    _name, _left, _mark = read(os.environ)
except Refused:  # told by `check`, when a process starts: an import cannot tell it
    _name, _left, _mark = "", 0, None


def check() -> None:
    """Raises E_CONFIG where the environment arms what is not there."""
    read(os.environ)


def is_armed(name: str) -> bool:
    """For places that must bring about the state they are named after, before they are reached."""
    return bool(_name) and name == (_marked() if _name == MARKED else _name)


def reach(name: str) -> None:
    """Die here, if the environment says so."""
    global _left  # noqa: PLW0603  one process, one armed place
    if not _name or not is_armed(name):
        return
    _left -= 1
    if _left > 0:
        return
    if _mark is not None:
        try:
            _mark.unlink()
        except FileNotFoundError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


def _marked() -> str:
    try:
        return "" if _mark is None else _mark.read_text("utf-8").strip()
    except FileNotFoundError:
        return ""
