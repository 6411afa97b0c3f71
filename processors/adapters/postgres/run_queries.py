"""Questions about runs, answered by Postgres with one statement each, however many runs are asked about."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import UndefinedTable
from psycopg.rows import TupleRow, class_row, dict_row, tuple_row

from processors.adapters.postgres.arrays import with_literals
from processors.adapters.postgres.flush import call, flush
from processors.adapters.postgres.migrations import shipped
from processors.adapters.postgres.pooled import Pool, Row, ask, borrowed, read
from processors.adapters.postgres.statements import statements
from processors.ports.run_queries import (
    AcceptedRun,
    Attempt,
    Cursor,
    EventRun,
    History,
    News,
    QueuePlace,
    RefusedOutcome,
    Run,
    RunFilter,
    RunPage,
    RunSummary,
    TakenEvent,
)
from schemas.errors import Refused, Unavailable
from schemas.ids import DAY_MILLIS, event_millis, run_id_range

_MOST_EVENT_RUNS = 500
_LONGEST_COMMIT_MILLIS = 15_000  # from the reading of a record to its commit


class PostgresRunQueries:
    """`quick` is a pool for what the doors ask, where lists and logs may not stand in front of it."""

    def __init__(self, pool: Pool, quick: Pool | None = None) -> None:
        self._pool = pool
        self._quick = quick or pool
        self._sql = statements("run_queries")
        self._shipped = [(migration.number, migration.checksum) for migration in shipped()]

    async def check_ready(self) -> None:
        try:
            found = await ask(self._quick, self._sql["find_migrations"], {}, tuple_row)
        except UndefinedTable as exc:
            raise Unavailable("E_MIGRATION", "the database holds no schema yet; run `a44 migrate`") from exc
        if found != self._shipped:
            raise Unavailable(
                "E_MIGRATION",
                f"the database has {len(found)} migrations, this version ships {len(self._shipped)} and they "
                "are not the same; run `a44 migrate`, or install the version that fits the database",
            )

    async def find_run(self, project_id: str, run_id: str) -> Run | None:
        return _one(await ask(self._pool, self._sql["find_run"], _of(project_id, run_id), class_row(Run)))

    async def find_accepted(self, project_id: str, run_id: str) -> AcceptedRun | None:
        return _one(await ask(self._pool, self._sql["find_accepted"], _of(project_id, run_id), class_row(AcceptedRun)))

    async def attempts(self, project_id: str, run_id: str, limit: int) -> Sequence[Attempt]:
        parameters = {**_of(project_id, run_id), "limit": limit}
        rows = await ask(self._pool, self._sql["find_attempts"], parameters, class_row(Attempt))
        return rows[::-1]

    async def late_attempts(self, project_id: str, run_id: str, limit: int) -> Sequence[RefusedOutcome]:
        parameters = {**_of(project_id, run_id), "limit": limit}
        rows = await ask(self._pool, self._sql["find_late"], parameters, class_row(RefusedOutcome))
        return rows[::-1]

    async def list_runs(self, project_id: str, wanted: RunFilter) -> RunPage:
        """One row more than the page is asked for: it tells whether there is a next page."""
        parameters = {
            "project_id": project_id,
            "state": wanted.state,
            "step": wanted.step,
            "workflow_id": wanted.workflow_id,
            "since": wanted.since,
            "after": wanted.after,
            "limit": wanted.limit + 1,
        }
        if wanted.step is not None:
            rows = await ask(self._pool, self._sql["list_runs_at_step"], parameters, dict_row)
            total = rows[0]["total"]
            found = [_summary(row) for row in rows if row["run_id"] is not None]
        else:
            found = await ask(self._pool, self._sql["list_runs"], parameters, class_row(RunSummary))
            total = (await ask(self._pool, self._sql["count_runs"], parameters, tuple_row))[0][0]
        runs = found[: wanted.limit]
        return RunPage(total, runs, runs[-1].run_id if len(found) > wanted.limit else None)

    async def find_event(self, project_id: str, event_id: str) -> TakenEvent | None:
        asked = {"project_id": project_id, "event_id": event_id, "limit": _MOST_EVENT_RUNS}
        row = _one(await ask(self._pool, self._sql["find_event"], asked, tuple_row))
        taken_at = None if row is None else row[0]
        runs: list[EventRun] = []
        for span in _spans(event_id, taken_at):
            first, last = run_id_range(*span)
            bounds = {**asked, "first": first, "last": last}
            runs += await ask(self._pool, self._sql["find_event_runs"], bounds, class_row(EventRun))
        return TakenEvent(event_id, taken_at, runs) if runs or taken_at is not None else None

    async def queue_place(self, project_id: str, run_id: str) -> QueuePlace | None:
        return _one(
            await ask(self._pool, self._sql["find_queue_place"], _of(project_id, run_id), class_row(QueuePlace))
        )

    async def states(self, run_ids: Sequence[str]) -> Mapping[str, str]:
        return dict(await ask(self._quick, self._sql["find_states"], {"run_ids": list(run_ids)}, tuple_row))

    async def ended(self, run_ids: Sequence[str], limit: int) -> Mapping[str, History]:
        asked = {"run_ids": list(run_ids), "limit": limit}
        return await read(self._quick, partial(_endings, self._sql, asked))

    async def news(self, cursors: Sequence[Cursor]) -> Mapping[Cursor, News]:
        """The ends are read first: a run that was over by then has no record that is not read after."""
        asked = {"run_ids": [cursor.run_id for cursor in cursors]}
        ended: dict[str, str] = dict(await ask(self._quick, self._sql["find_ends"], asked, tuple_row))
        rows = await ask(
            self._pool,
            self._sql["find_news"],
            {
                "run_ids": [cursor.run_id for cursor in cursors],
                "generations": [cursor.generation for cursor in cursors],
                "seqs": [cursor.seq for cursor in cursors],
            },
            dict_row,
        )
        records: dict[Cursor, list[Attempt]] = {}
        for row in rows:
            cursor = Cursor(row.pop("cursor_run"), row.pop("cursor_generation"), row.pop("cursor_seq"))
            records.setdefault(cursor, []).append(Attempt(**row))
        return {
            cursor: News(records.get(cursor, ()), ended.get(cursor.run_id))
            for cursor in cursors
            if cursor in records or cursor.run_id in ended
        }

    async def request_cancel(self, project_id: str, run_id: str, reason: str, actor: str) -> str:
        """In this order: lock the head row; leave the mail; wake the run; commit; tell."""
        body = json.dumps({"reason": reason}, ensure_ascii=False)
        parameters = {**_of(project_id, run_id), "body": body, "actor": actor}
        async with borrowed(self._pool) as conn:
            async with conn.transaction():
                state = await _lock(conn, self._sql, parameters)
                for name in ("send_cancel", "wake_run", "record_cancel"):
                    await conn.execute(self._sql[name], parameters)
            await conn.execute(self._sql["tell_mail"])
        return state


def _spans(event_id: str, taken_at: datetime | None) -> list[tuple[int, int]]:
    """Where the ids of an event's runs may lie, in milliseconds: at the time that its id tells, and where that is not
    believed, about when it was decided: ingest's reckoning of the database's clock may be a little ahead of it.
    """
    told = event_millis(event_id)
    spans = [] if told is None else [(told, told)]
    if taken_at is not None:
        taken = int(taken_at.timestamp() * 1000)
        if told is None or abs(told - taken) > DAY_MILLIS - _LONGEST_COMMIT_MILLIS:
            spans.append((max(taken - _LONGEST_COMMIT_MILLIS, 0), taken + _LONGEST_COMMIT_MILLIS))
    return spans


async def _endings(
    sql: Mapping[str, str], parameters: Mapping[str, Any], conn: AsyncConnection[TupleRow]
) -> dict[str, History]:
    """One trip. The heads are read first: a run that was over by then has no record that is not read after."""
    names = ("find_ended", "find_ended_attempts", "find_ended_late")
    heads, records, refused = await flush(conn, [call(sql[name], with_literals(parameters)) for name in names])
    attempts: dict[str, list[Attempt]] = {row[0]: [] for row in heads}
    for row in records:
        if row[0] in attempts:
            attempts[row[0]].append(Attempt(*row))
    late: dict[str, list[RefusedOutcome]] = {row[0]: [] for row in heads}
    for row in refused:
        if row[0] in late:
            late[row[0]].append(RefusedOutcome(*row[1:]))
    return {row[0]: History(Run(*row), attempts[row[0]], late[row[0]]) for row in heads}


async def _lock(conn: AsyncConnection[TupleRow], sql: Mapping[str, str], parameters: Mapping[str, Any]) -> str:
    """The state of a live run, now locked. Raises where there is no live run to cancel."""
    row = await (await conn.execute(sql["lock_run"], parameters)).fetchone()
    if row is not None:
        return str(row[0])
    run_id = parameters["run_id"]
    ended = await (await conn.execute(sql["find_end"], parameters)).fetchone()
    if ended is not None:
        raise Refused(
            "E_RUN_ENDED",
            f"{run_id} has ended as {ended[0]}; only a run that has not ended can be cancelled",
            details={"run_id": run_id, "state": ended[0]},
        )
    if await (await conn.execute(sql["find_accepted"], parameters)).fetchone() is not None:
        raise Unavailable("E_UNAVAILABLE", f"{run_id} is accepted and not made yet; cancel it in a moment")
    raise Refused("E_RUN_NOT_FOUND", f"{run_id} is no run of this project; `a44 automation runs` lists them")


def _of(project_id: str, run_id: str) -> dict[str, str]:
    return {"project_id": project_id, "run_id": run_id}


def _one(rows: Sequence[Row]) -> Row | None:
    return rows[0] if rows else None


def _summary(row: dict[str, Any]) -> RunSummary:
    return RunSummary(**{name: value for name, value in row.items() if name != "total"})
