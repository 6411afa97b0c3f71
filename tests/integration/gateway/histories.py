"""Histories put straight into the log, for questions about runs that no executor has run."""

from typing import Any

import psycopg

ERROR = '{"code": "E_UPSTREAM_503", "message": "the partner answered 503"}'

_MOVE = """
insert into automation.runs_ended (
    run_id, project_id, workflow_id, definition_id, version, state, fence, generation, queue_id, lane, event_id,
    event_type, trigger_id, idempotency_key, partition_key, operation_version, redrive_count, occurred_at, accepted_at,
    created_at, started_at, input, result, error_code, error)
select run_id, project_id, workflow_id, definition_id, version, %s, fence, generation, queue_id, lane, event_id,
       event_type, trigger_id, idempotency_key, partition_key, operation_version, redrive_count, occurred_at,
       accepted_at, created_at, started_at, input, %s, %s, %s
  from automation.live_runs
 where run_id = %s
"""
_ENDED = """
insert into automation.runs_ended (
    run_id, project_id, workflow_id, definition_id, version, state, fence, generation, queue_id, lane, event_id,
    event_type, trigger_id, idempotency_key, partition_key, operation_version, redrive_count, occurred_at, accepted_at,
    created_at, started_at, input, result, error_code, error)
select %s, %s, 'wf_invoice_settle', 1, '1', %s, 1, 1, 'q_default', 'lane', 'evt_1', 'a.b', 'trg_test', 'key', 'lane',
       1, 0, at, at, at, at, '{}', %s, %s, %s
  from to_timestamp(%s) as at
"""
_RECORD = """
insert into automation.step_attempts (
    run_id, generation, seq, project_id, kind, step_id, attempt, status, after, final, error_code, error, result,
    started_at, finished_at)
values (%s, 1, %s, %s, 'step', %s, %s, %s, 0, true, %s, %s, %s, clock_timestamp(), clock_timestamp())
"""
_LATE = """
insert into automation.late_attempts (run_id, project_id, fence, step_id, attempt, status, result)
values (%s, %s, 1, %s, 1, 'succeeded', %s)
"""


async def _run(dsn: str, *statements: tuple[str, tuple[Any, ...]]) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        for text, parameters in statements:
            await conn.execute(text.encode(), parameters)


async def end_run(dsn: str, run: str, *, state: str, result: str | None = None, error_code: str | None = None) -> None:
    """End a live run, as an executor does: both tables in one commit."""
    error = ERROR if error_code else None
    await _run(
        dsn,
        (_MOVE, (state, result, error_code, error, run)),
        ("delete from automation.live_runs where run_id = %s", (run,)),
    )


async def insert_ended(
    dsn: str,
    run: str,
    *,
    state: str,
    result: str | None = None,
    error_code: str | None = None,
    project: str = "pj_shop",
) -> None:
    """A run that ended, accepted at the time that its id tells."""
    at = _time_of(run)
    error = ERROR if error_code else None
    await _run(dsn, (_ENDED, (run, project, state, result, error_code, error, at)))


async def record(
    dsn: str, run: str, *steps: tuple[str, str], start: int = 1, result: str = '{"id": 1.0}', project: str = "pj_shop"
) -> None:
    """Records of a run, in order: each a step and its status."""
    attempts: dict[str, int] = {}
    rows = []
    for seq, (step, status) in enumerate(steps, start):
        attempts[step] = attempts.get(step, 0) + 1
        failed = status == "failed"
        error = ("E_UPSTREAM_503", ERROR, None) if failed else (None, None, result if status == "succeeded" else None)
        rows.append((_RECORD, (run, seq, project, step, attempts[step], status, *error)))
    await _run(dsn, *rows)


async def record_late(dsn: str, run: str, step: str, result: str, project: str = "pj_shop") -> None:
    """An outcome that the fence refused."""
    await _run(dsn, (_LATE, (run, project, step, result)))


def _time_of(run: str) -> float:
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    millis = 0
    for character in run[4:14]:
        millis = millis * 32 + digits.index(character)
    return millis / 1000
