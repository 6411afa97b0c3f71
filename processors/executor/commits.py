"""A batch that the log refuses as a whole is taken apart, so that one run's bad record never fails its neighbours.

The run at fault goes on nowhere: it is blocked, with a record that says so in place of what cannot be stored.
"""

from collections.abc import Iterable
from datetime import datetime

from processors.engine.effects import Block
from processors.executor.live_run import LiveRun
from processors.ports.journal import Batch, Claim, Journal
from schemas.errors import Broken
from schemas.records import RUN_ITEM, ErrorInfo, Kind, Record, Status

UNSTORABLE = ErrorInfo(
    "E_INTERNAL",
    "Defect",
    "this run met a defect of the service and cannot go on; the executor's log says what it was",
    retryable=False,
)
UNSTORABLE_BLOCK = Block(UNSTORABLE)


async def commit_apart(journal: Journal, batch: Batch) -> tuple[list[Claim], dict[str, Broken]]:
    """Commit all that can be committed; answer the claims, and the runs whose part was refused.

    Raises as `Journal.commit`, and `Broken` where even what belongs to no run is refused.
    """
    runs = list(dict.fromkeys(_runs_of(batch)))
    shared = Batch(hinted=batch.hinted, look_for_granted=batch.look_for_granted, room=batch.room)
    claims = list(await journal.commit(shared))
    refused: dict[str, Broken] = {}
    parts = [runs]
    while parts:
        part = parts.pop()
        try:
            claims += await journal.commit(_part(batch, set(part)))
        except Broken as exc:
            if len(part) == 1:
                refused[part[0]] = exc
            else:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    if batch.mail:  # last: mail whose effect was not committed is read again
        claims += await journal.commit(Batch(mail=batch.mail))
    return claims, refused


def leave_out(batch: Batch, run_id: str) -> None:
    """Take everything of a run out of a batch."""
    batch.entries = [entry for entry in batch.entries if entry.run_id != run_id]
    batch.ends = [end for end in batch.ends if end.run_id != run_id]
    batch.rests = [rest for rest in batch.rests if rest.run_id != run_id]
    batch.announcements = [told for told in batch.announcements if told.key != run_id]
    batch.crashes.pop(run_id, None)


def defect_record(run: LiveRun, now: datetime) -> Record:
    """The next record of a run whose own records went wrong behind the last committed one."""
    return Record(
        run.committed + 1,
        Kind.RUN,
        RUN_ITEM,
        0,
        Status.BLOCKED,
        max(run.state.heard, 0),
        final=False,
        error=UNSTORABLE,
        recorded_at=now,
    )


def is_worth_a_commit(batch: Batch) -> bool:
    """Whether it changes or asks for anything; an empty one only renews the lease."""
    changes = (batch.entries, batch.ends, batch.rests, batch.mail, batch.crashes)
    return any(changes) or bool(batch.hinted) or batch.look_for_granted


def _runs_of(batch: Batch) -> Iterable[str]:
    yield from (entry.run_id for entry in batch.entries)
    yield from (end.run_id for end in batch.ends)
    yield from (rest.run_id for rest in batch.rests)
    yield from (told.key for told in batch.announcements)
    yield from batch.crashes


def _part(batch: Batch, runs: set[str]) -> Batch:
    return Batch(
        entries=[entry for entry in batch.entries if entry.run_id in runs],
        ends=[end for end in batch.ends if end.run_id in runs],
        rests=[rest for rest in batch.rests if rest.run_id in runs],
        announcements=[told for told in batch.announcements if told.key in runs],
        crashes={run_id: count for run_id, count in batch.crashes.items() if run_id in runs},
        room=batch.room,
    )
