"""A project's events in Postgres: ranges of the inbox, and the runs of a page in one more question."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import dict_row, tuple_row

from processors.adapters.postgres.arrays import with_literals
from processors.adapters.postgres.pooled import Pool, ask
from processors.adapters.postgres.statements import statements
from processors.ports.run_queries import EventRun
from processors.ports.taken_events import FreshEvents, Mark, SeenEvent
from schemas.ids import MAX_MILLIS, event_id_at, event_millis, run_id_range

_PAGE = 500
_MOST_RUNS = 50  # of one event
_LOOK_BACK_MILLIS = 30_000  # ingest reads partitions side by side: one may be so far behind another
_NOTHING_SEEN = "1:1:"  # a snapshot before all transactions
_LAST = "evt_~"  # behind every id of ours


class PostgresTakenEvents:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("taken_events")

    async def list_events(
        self, project_id: str, *, since: datetime | None, after: str | None, limit: int
    ) -> Sequence[SeenEvent]:
        first = "evt_" if since is None else _at(since)
        asked = {"project_id": project_id, "first": first, "last": after or _LAST, "limit": limit}
        return await self._told(project_id, await ask(self._pool, self._sql["list_events"], asked, tuple_row))

    async def mark(self, project_id: str, since: datetime) -> Mark:
        return Mark(project_id, _NOTHING_SEEN, _at(since))

    async def fresh(self, mark: Mark) -> FreshEvents:
        """Page by page; the snapshot of the first is the next mark's, so what commits meanwhile comes next time."""
        asked = {
            "project_id": mark.project_id,
            "snapshot": mark.snapshot,
            "last": _LAST,
            "limit": _PAGE,
            "first": _from(mark),
        }
        found: list[tuple[str, datetime]] = []
        snapshot = None
        while True:
            rows = await ask(self._pool, self._sql["find_new_events"], asked, tuple_row)
            snapshot = snapshot or rows[0][0]
            found += [(event_id, taken_at) for _, event_id, taken_at in rows if event_id is not None]
            if len(rows) < _PAGE:
                break
            asked["first"] = found[-1][0]
        newest = max([mark.event_id, *(event_id for event_id, _ in found)])
        return FreshEvents(await self._told(mark.project_id, found), Mark(mark.project_id, snapshot, newest))

    async def _told(self, project_id: str, rows: Sequence[tuple[str, datetime]]) -> list[SeenEvent]:
        ours = [(event_id, millis, taken) for event_id, taken in rows if (millis := event_millis(event_id)) is not None]
        ranges = [run_id_range(millis, millis) for _, millis, _ in ours]
        asked = {
            "project_id": project_id,
            "event_ids": [event_id for event_id, *_ in ours],
            "firsts": [first for first, _ in ranges],
            "lasts": [last for _, last in ranges],
            "limit": _MOST_RUNS,
        }
        runs: dict[str, list[dict[str, Any]]] = {}
        if ours:
            for row in await ask(self._pool, self._sql["find_runs_of_events"], with_literals(asked), dict_row):
                runs.setdefault(row.pop("event_id"), []).append(row)
        return [_seen(event_id, millis, taken, runs.get(event_id, [])) for event_id, millis, taken in ours]


def _at(moment: datetime) -> str:
    """The first id of a moment, of the nearest one where no id can tell it."""
    return event_id_at(min(max(int(moment.timestamp() * 1000), 0), MAX_MILLIS))


def _from(mark: Mark) -> str:
    """A mark that never was asked from begins at its moment, another a little before it."""
    millis = event_millis(mark.event_id) or 0
    return event_id_at(millis if mark.snapshot == _NOTHING_SEEN else max(millis - _LOOK_BACK_MILLIS, 0))


def _seen(event_id: str, millis: int, taken_at: datetime, rows: Sequence[dict[str, Any]]) -> SeenEvent:
    kinds = {(row.pop("event_type"), row.pop("idempotency_key")) for row in rows}
    kind, key = kinds.pop() if kinds else (None, None)
    accepted_at = datetime.fromtimestamp(millis / 1000, UTC)
    return SeenEvent(event_id, accepted_at, taken_at, kind, key, [EventRun(**row) for row in rows])
