"""Redrives in Postgres: an order in one transaction, and each step of it in one, from its pace to the grants."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from psycopg.rows import class_row, tuple_row

from processors.adapters.postgres.batches import ConnectionLostError, Statement, commit
from processors.adapters.postgres.grants import create_runs, grant_ready, granted, lock_queues, note_bodies, queues_of
from processors.adapters.postgres.pooled import Pool, ask, borrowed
from processors.adapters.postgres.statements import statements
from processors.ports.redrives import Candidate, DueRedrive, Order, OrderedRedrive, Started, Step, WaitingLetter
from processors.ports.runs import Grant
from schemas.errors import Refused, Unavailable

MOST = 500
_LEAST_RATE = 1 / 3600  # letters a second: below that an order would never end


class PostgresRedrives:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("redrives")

    async def candidates(
        self, project_id: str, queue_id: str, *, whole: bool, after: str | None, limit: int
    ) -> Sequence[Candidate]:
        wanted = {"project_id": project_id, "queue_id": queue_id, "whole": whole, "after": after, "limit": limit}
        return await ask(self._pool, self._sql["find_candidates"], wanted, class_row(Candidate))

    async def start(self, order: Order) -> Started:
        values: dict[str, Any] = {**asdict(order), "letters": list(order.letters)}
        async with borrowed(self._pool) as conn, conn.transaction():
            await conn.execute(self._sql["lock_rates"], values)
            row = await (await conn.execute(self._sql["find_rate_in_use"], values)).fetchone()
            in_use, own = row or (0.0, None)
            cap = order.cap if own is None else own
            left = cap - in_use
            if left < _LEAST_RATE:
                raise Refused(
                    "E_REDRIVE_RATE",
                    f"the redrives under way in {order.project_id} take its whole rate of {cap:g} letters "
                    "a second; wait until one has ended, or stop one",
                )
            values["rate"] = min(order.rate, left)
            started = await (await conn.execute(self._sql["start_redrive"], values)).fetchone()
        return Started(started[0] if started else 0, values["rate"])

    async def own_cap(self, project_id: str) -> float | None:
        rows = await ask(self._pool, self._sql["find_rate_in_use"], {"project_id": project_id}, tuple_row)
        return None if rows[0][1] is None else float(rows[0][1])

    async def orders(
        self, project_id: str, *, under_way: bool, after: str | None, limit: int
    ) -> Sequence[OrderedRedrive]:
        wanted = {"project_id": project_id, "under_way": under_way, "after": after, "limit": limit}
        return await ask(self._pool, self._sql["list_redrives"], wanted, class_row(OrderedRedrive))

    async def stop(self, project_id: str, redrive_id: str, actor: str, reason: str) -> OrderedRedrive | None:
        """Under the row's lock: a step that is being taken is counted, one that comes later finds that it ended."""
        values = {"project_id": project_id, "redrive_id": redrive_id, "actor": actor, "reason": reason}
        async with borrowed(self._pool) as conn, conn.transaction():
            await conn.execute(self._sql["lock_redrive"], values)
            await conn.execute(self._sql["stop_redrive"], values)
            async with conn.cursor(row_factory=class_row(OrderedRedrive)) as cursor:
                await cursor.execute(self._sql["find_redrive"], values)
                return await cursor.fetchone()

    async def due(self) -> Sequence[DueRedrive]:
        return await ask(self._pool, self._sql["find_due"], {"most": MOST}, class_row(DueRedrive))

    async def waiting(self, redrive: DueRedrive) -> Sequence[WaitingLetter]:
        wanted = {"redrive_id": redrive.redrive_id, "limit": redrive.allowed}
        return await ask(self._pool, self._sql["find_waiting"], wanted, class_row(WaitingLetter))

    async def commit(self, step: Step) -> Sequence[Grant]:
        batch, grants = _transaction(step)
        async with borrowed(self._pool) as conn:
            try:
                results = await commit(conn, batch)
            except ConnectionLostError as exc:  # whether it was committed, the next look finds by the counts
                raise Unavailable("E_UNAVAILABLE", f"the connection to Postgres broke: {exc}") from exc
        return granted([(row[0], row[1], row[2]) for row in results[grants]]) if grants is not None else []


def _transaction(step: Step) -> tuple[list[Statement], int | None]:
    """Lock order: the redrive, queues, inbox, lanes, runs. What follows the first statement hangs on it."""
    sql, redrive, grants = statements("redrives"), step.redrive, None
    runs = [one.run for one in step.redriven]
    whose = {
        "redrive_id": redrive.redrive_id,
        "project_id": redrive.project_id,
        "operator": redrive.operator,
        "reason": redrive.reason,
    }
    counts = {"redriven": len(step.redriven), "refused": len(step.refused), "done": redrive.done}
    batch: list[Statement] = [(sql["take_step"], {**whose, **counts})]
    if runs:
        marks = {
            "letters": [one.dead_letter_id for one in step.redriven],
            "run_ids": [run.run_id for run in runs],
            "old_run_ids": [one.old_run_id for one in step.redriven],
        }
        batch += lock_queues(*queues_of(runs))
        batch.append((sql["note_events"], {**whose, "event_ids": [run.event_id for run in runs]}))
        batch += [create_runs(runs, [None] * len(runs)), *note_bodies(runs), grant_ready(*queues_of(runs))]
        grants = len(batch) - 1
        batch.append((sql["mark_redriven"], {**whose, **marks}))
    if step.refused:
        freed = {
            "letters": [one.dead_letter_id for one in step.refused],
            "error_codes": [one.error_code for one in step.refused],
        }
        batch.append((sql["free_letters"], {**whose, **freed}))
    return batch, grants
