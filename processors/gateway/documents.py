"""Runs as JSON documents. Inputs, results and errors are put in as they are stored: no number is read again."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from processors.engine.moves import RunStatus
from processors.gateway.parts import ACCEPTED, Parts
from processors.gateway.sentences import Place, sentence, standing_at
from processors.ports.run_queries import AcceptedRun, Attempt, History, RefusedOutcome, Run
from schemas.errors import Refused
from schemas.ids import is_run_id

_STORED = frozenset({"input", "result", "error"})
_PLAIN: Mapping[type, Sequence[str]] = {
    kind: [field.name for field in dataclasses.fields(kind) if field.name not in _STORED]
    for kind in (Run, Attempt, RefusedOutcome)
}


async def run_document(parts: Parts, project_id: str, run_id: str) -> dict[str, Any]:
    """All that is known of one run. Raises Refused E_RUN_NOT_FOUND."""
    run = await find_run(parts, project_id, run_id)
    now = parts.door.now()
    if isinstance(run, AcceptedRun):
        return {**dataclasses.asdict(run), "state": ACCEPTED, "where": sentence(run, Place(now))}
    most = parts.limits.attempts
    attempts = await parts.queries.attempts(project_id, run_id, most)
    history = History(run, attempts, await parts.queries.late_attempts(project_id, run_id, most))
    place = Place(now, attempts)
    if run.state == RunStatus.PENDING:
        place.queue = await parts.queries.queue_place(project_id, run_id)
    return history_document(history, place)


def history_document(history: History, place: Place) -> dict[str, Any]:
    """A run that was made, with its records."""
    run, standing = history.run, standing_at(history.run, history.attempts)
    return {
        **_plain(run),
        "current_step": None if standing is None else standing.step_id,
        "where": sentence(run, place),
        "input": raw(run.input),
        "result": raw(run.result),
        "error": raw_or_text(run.error),
        "attempts": [attempt_document(attempt) for attempt in history.attempts],
        "late_attempts": [attempt_document(one) for one in history.late],
    }


async def find_run(parts: Parts, project_id: str, run_id: str) -> Run | AcceptedRun:
    """A run, made or only promised. Raises Refused E_RUN_NOT_FOUND."""
    if is_run_id(run_id):
        run = await parts.queries.find_run(project_id, run_id)
        found = run or await parts.queries.find_accepted(project_id, run_id)
        if found is not None:  # between the two questions ingest may have made it
            return found if run else (await parts.queries.find_run(project_id, run_id) or found)
    raise Refused("E_RUN_NOT_FOUND", f"{run_id[:80]!r} is no run of this project; `a44 automation runs` lists them")


def attempt_document(attempt: Attempt | RefusedOutcome) -> dict[str, Any]:
    return {
        **_plain(attempt),
        "result": raw(attempt.result),
        "error": raw_or_text(attempt.error),
    }


def _plain(record: Run | Attempt | RefusedOutcome) -> dict[str, Any]:
    """All but what is stored as text of its own."""
    return {name: getattr(record, name) for name in _PLAIN[type(record)]}


def raw(text: str | None) -> msgspec.Raw | None:
    """Stored JSON text as a part of an answer."""
    return None if text is None else msgspec.Raw(text.encode())


def raw_or_text(text: str | None) -> msgspec.Raw | str | None:
    """A stored error: an object where it is JSON, else its text."""
    if text is None or not text.startswith("{"):
        return text
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())
