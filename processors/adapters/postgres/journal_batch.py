"""A batch as statements in their lock order (sessions, lanes, live_runs, outbox), and rows read back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from psycopg.rows import TupleRow

from processors.adapters.postgres.batches import Statement
from processors.adapters.postgres.columns import columns
from processors.adapters.postgres.statements import statements
from processors.ports.journal import Batch, Claim, LateAttempt, RunEnd, RunRest, UnreadableLog
from schemas.records import ErrorInfo, Kind, Record, Status

_encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(ErrorInfo).decode


@dataclass(slots=True)
class Plan:
    """`claiming` names the statements that answer claimed runs."""

    statements: list[Statement]
    claiming: list[int] = field(default_factory=list)

    def claims(self, results: Sequence[Sequence[TupleRow]], observe: Callable[[datetime], None]) -> list[Claim]:
        """`observe` is told what time it was; the last row of a statement was the last to be claimed."""
        found: list[Claim] = []
        for place in self.claiming:
            if results[place]:
                observe(results[place][-1][-1])
                found += [claim_of(row[:-1]) for row in results[place]]
        return found


def plan(batch: Batch, fence: Mapping[str, Any], dead_letters_topic: str) -> Plan:
    """The first statement proves the session; the last ones tell the world."""
    sql = statements("executor")
    session = {"session": fence["session"]}
    made = Plan([(sql["hold_session"], fence)])
    if batch.hinted:
        made.claiming.append(len(made.statements))
        made.statements.append((sql["claim_hinted"], {"runs": batch.hinted, **session}))
    left = batch.room - len(batch.hinted)
    if batch.look_for_granted and left > 0:
        made.claiming.append(len(made.statements))
        made.statements.append((sql["claim_any"], {"room": left, **session}))
    if batch.entries:
        made.statements.append((sql["append"], _entries(batch)))
    if batch.mail:
        mail = {"mail": batch.mail, **session}
        made.statements += [(sql["lock_mailboxes"], mail), (sql["consume_mail"], mail)]
    if batch.crashes:
        counts = {"run_id": list(batch.crashes), "crashes": list(batch.crashes.values())}
        made.statements.append((sql["set_crashes"], {**counts, **session}))
    if batch.ends or batch.rests:
        _settle(made, batch, session)
    if dead := [end for end in batch.ends if end.dead_letter_id is not None]:
        letters = {"run_ids": [end.run_id for end in dead], "dead_letter_ids": [end.dead_letter_id for end in dead]}
        made.statements.append((sql["announce_letters"], {**letters, "dead_letters_topic": dead_letters_topic}))
    if batch.announcements:
        told = batch.announcements
        values = {
            "topics": [one.topic for one in told],
            "keys": [one.key for one in told],
            "values": [one.value for one in told],
        }
        made.statements.append((sql["announce"], values))
    return made


def _settle(made: Plan, batch: Batch, session: Mapping[str, Any]) -> None:
    """Ends and rests: lanes first, then the head rows, then whoever is next. What rests is locked before it is looked
    at: mail may have come meanwhile.
    """
    sql = statements("executor")
    ordered = [end for end in batch.ends if end.lane_seq is not None]
    lanes = {
        "projects": [end.project_id for end in ordered],
        "queues": [end.queue_id for end in ordered],
        "lanes": [end.lane for end in ordered],
    }
    freed: list[RunEnd | RunRest] = [*batch.ends, *batch.rests]
    if ordered:
        made.statements.append((sql["lock_lanes"], lanes))
    if batch.rests:
        runs = [one.run_id for one in freed]
        made.statements.append((sql["lock_runs"], {"runs": runs, **session}))
    if batch.ends:
        made.statements.append((sql["end_runs"], {**_ends(batch), **session}))
    if ordered:
        seqs = {"lane_seqs": [end.lane_seq for end in ordered]}
        made.statements.append((sql["pass_lanes"], {**lanes, **seqs}))
    if batch.rests:
        made.statements.append(
            (sql["park_runs"], {**columns(batch.rests, ("run_id", "state", "visible_at")), **session})
        )
    slots = {
        "projects": [one.project_id for one in freed],
        "queues": [one.queue_id for one in freed],
        "room": max(batch.room, 0),
    }
    made.claiming.append(len(made.statements))
    made.statements.append((sql["hand_on"], {**slots, **session}))


def _entries(batch: Batch) -> dict[str, list[Any]]:
    records = [entry.record for entry in batch.entries]
    return {
        **columns(batch.entries, ("run_id", "generation", "project_id")),
        **columns(records, ("seq", "kind", "attempt", "status", "after", "final", "key", "cost")),
        **_errors([record.error for record in records]),
        "step_id": [record.item for record in records],
        "result": [record.value for record in records],
        "due_at": [record.due for record in records],
        "at": [record.recorded_at for record in records],
    }


def _ends(batch: Batch) -> dict[str, list[Any]]:
    return {
        **columns(batch.ends, ("run_id", "state", "result", "dead_letter_id", "reason", "summary")),
        **_errors([end.error for end in batch.ends]),
    }


def late_attempts(late: Sequence[LateAttempt]) -> Statement:
    """Rows beside the log."""
    return statements("executor")["keep_late"], {
        **columns(late, ("run_id", "fence", "attempt", "status", "key", "cost")),
        **_errors([one.error for one in late]),
        "step_id": [one.item for one in late],
        "result": [one.value for one in late],
    }


def _errors(errors: list[ErrorInfo | None]) -> dict[str, list[Any]]:
    """Their columns; as good as always nobody has one."""
    if errors.count(None) == len(errors):
        return {"error_code": errors, "error": errors}
    return {
        "error_code": [None if error is None else error.code for error in errors],
        "error": [None if error is None else _encode(error).decode() for error in errors],
    }


def claim_of(row: Sequence[Any]) -> Claim:
    return Claim(*row)


def log_of(rows: Sequence[TupleRow]) -> list[Record] | UnreadableLog:
    """A run's log from its rows of `read_logs`, in their order."""
    try:
        return [record_of(row) for row in rows]
    except (ValueError, msgspec.MsgspecError) as exc:
        return UnreadableLog(rows[-1][1], str(exc))


def record_of(row: Sequence[Any]) -> Record:
    """A record from a row of `read_logs`."""
    _, seq, kind, item, attempt, status, after, final, due, key, value, error, cost, at = row
    told = _decode_error(error.encode()) if error is not None else None
    when = due.astimezone(UTC) if due is not None else None
    return Record(
        seq, Kind(kind), item, attempt, Status(status), after, final, when, key, value, told, cost, at.astimezone(UTC)
    )
