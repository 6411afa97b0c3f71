"""Places where a test may kill this process, by name. Inert unless the environment arms one.

`A44_CRASH_POINT` is a name of `CRASH_POINTS`, or `name:n` for the n-th time that it is reached.
`A44_CRASH_MARK`, where set, is a file without which nothing happens; it is removed first, so that a process
that is started again goes on. The end is SIGKILL: no handler, no buffer, no goodbye.
"""

import os
import signal
from pathlib import Path

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
    "after_regrant_before_hint": "the runs of a dead session are granted again; nobody was told",
}


def _armed() -> tuple[str, int]:
    name, _, times = os.environ.get("A44_CRASH_POINT", "").partition(":")
    if name and name not in CRASH_POINTS:
        raise ValueError(f"A44_CRASH_POINT is {name!r}; expected one of {', '.join(CRASH_POINTS)}")
    return name, int(times or 1)


_name, _left = _armed()


def is_armed(name: str) -> bool:
    """For places that must bring about the state they are named after, before they are reached."""
    return _name == name


def reach(name: str) -> None:
    """Die here, if the environment says so."""
    global _left  # noqa: PLW0603  one process, one armed place
    if _name != name:
        return
    _left -= 1
    if _left > 0:
        return
    mark = os.environ.get("A44_CRASH_MARK")
    if mark is not None:
        try:
            Path(mark).unlink()
        except FileNotFoundError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
