"""What a scheduled time is called: the key of its run, made from the trigger and the nominal occurrence alone.

Whoever asks for an occurrence, and however often, asks with one key, so it becomes one run; and no two occurrences
share a key, so that a window of keys never swallows the next one. That a key was used before is a sign of two
schedulers, or of a clock that went back: it is no fault, and it is told. Nobody asks yet: this version refuses
triggers of type `schedule`.
"""

from datetime import datetime

from processors.ports.door import Answer, Outcome


def occurrence_key(trigger_id: str, nominal: datetime) -> str:
    """`nominal` is the local time that the schedule names, with the offset in force there: the two passes through a
    repeated hour differ by it. Raises `ValueError` without one.
    """
    if nominal.utcoffset() is None:
        raise ValueError(f"the occurrence {nominal.isoformat()} of {trigger_id} has no offset")
    return f"{trigger_id}:{nominal.isoformat(timespec='seconds')}"


def warning_of(key: str, answer: Answer) -> str | None:
    """What is to be said of a door's answer to an occurrence; None where it made its run."""
    if answer.outcome is Outcome.CREATED:
        return None
    run = answer.run_id or answer.event_id
    if answer.outcome is Outcome.DUPLICATE:
        return f"the occurrence {key} had its run already: {run}, {answer.key_age:.0f} s ago; no other was started"
    return f"the occurrence {key} was answered {answer.outcome.value}, and no run was started"
