"""The scheduling plane as statements: make runs, grant them. Callers put these into their own transaction."""

from collections.abc import Sequence
from datetime import datetime

from processors.adapters.postgres.batches import Statement
from processors.adapters.postgres.columns import columns, columns_of
from processors.adapters.postgres.statements import statements
from processors.ports.runs import Grant, NewRun

MOST_GRANTS = 1000
_WITHOUT_DIGITS = len("2026-07-19T14:02:11.Z")


def lock_queues(projects: Sequence[str], queues: Sequence[str]) -> list[Statement]:
    """First in a transaction after the session or the progress row: the queues, and their counters folded."""
    sql = statements("grants")
    wanted = {"projects": list(projects), "queues": list(queues)}
    return [(sql["lock_queues"], wanted), (sql["fold_deltas"], wanted)]


def create_runs(runs: Sequence[NewRun], accepted_at: Sequence[datetime | None]) -> Statement:
    """Makes the runs whose event the transaction was the first to note."""
    return statements("grants")["create_runs"], {
        **columns_of(runs, NewRun),
        "accepted_at": list(accepted_at),
        "occurred_digits": [max(len(run.occurred_at) - _WITHOUT_DIGITS, 0) for run in runs],
    }


def note_bodies(runs: Sequence[NewRun]) -> list[Statement]:
    """After `create_runs`; nothing where all inputs are in their rows."""
    stored = [run.run_id for run in runs if run.input_ref is not None]
    return [(statements("grants")["note_bodies"], {"runs": stored})] if stored else []


def grant_ready(projects: Sequence[str], queues: Sequence[str]) -> Statement:
    """Gives free slots of locked queues; answers rows for `granted`."""
    wanted = {"projects": list(projects), "queues": list(queues), "most": MOST_GRANTS}
    return statements("grants")["grant_ready"], wanted


def grant_overdue(projects: Sequence[str], queues: Sequence[str]) -> Statement:
    """Before `grant_ready`: ready runs of locked queues whose deadline has passed; answers rows for `granted`."""
    wanted = {"projects": list(projects), "queues": list(queues), "most": MOST_GRANTS}
    return statements("deadlines")["grant_overdue"], wanted


def granted(rows: Sequence[tuple[str, int, str]]) -> list[Grant]:
    return [Grant(run_id, fence, lane) for run_id, fence, lane in rows]


def queues_of(runs: Sequence[NewRun]) -> tuple[list[str], list[str]]:
    """Projects and queues of runs, for the lock."""
    both = columns(runs, ("project_id", "queue_id"))
    return both["project_id"], both["queue_id"]
