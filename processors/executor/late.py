"""Outcomes that came when their run had another owner already: refused by the fence, and kept beside the log."""

from collections import deque
from collections.abc import Iterable, Mapping

import structlog

from processors.engine import commands
from processors.executor.live_run import LiveRun
from processors.ports.journal import Batch, Journal, LateAttempt
from schemas.errors import Broken, Unavailable
from schemas.records import ErrorInfo, Kind, Record, Status

_log = structlog.get_logger("executor")
MOST_BYTES = 32 * 1024 * 1024  # of results that wait for Postgres; the oldest go first
ROW_BYTES = 500  # of one without its value, about
_OUTCOMES = frozenset({Status.SUCCEEDED, Status.FAILED})


class LateResults:
    """Gathers without waiting; `keep` writes what has gathered."""

    def __init__(self) -> None:
        self._gathered: deque[LateAttempt] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._gathered)

    def add(self, late: LateAttempt) -> None:
        self._gathered.append(late)
        self._bytes += _size(late)
        while self._bytes > MOST_BYTES:
            self._bytes -= _size(self._gathered.popleft())

    def add_refused(self, batch: Batch, runs: Mapping[str, LiveRun]) -> None:
        """The outcomes of a batch that the fence refused."""
        for entry in batch.entries:
            run = runs.get(entry.run_id)
            if run is not None and _is_outcome(entry.record):
                one = entry.record
                self.add(_late(run, one.item, one.attempt, one.status, one.value, one.error, one.cost or 0.0))

    def add_unheard(self, inbox: Iterable[tuple[str, int, commands.Command]], runs: Mapping[str, LiveRun]) -> None:
        """The outcomes that nobody has decided about yet."""
        for run_id, fence, command in inbox:
            run = runs.get(run_id)
            if run is None or run.claim.fence != fence:
                continue
            match command:
                case commands.Done(item, attempt, _, value, cost):
                    self.add(_late(run, item, attempt, Status.SUCCEEDED, value, None, cost))
                case commands.Failed(item, attempt, _, error, cost):
                    self.add(_late(run, item, attempt, Status.FAILED, None, error, cost))
                case _:
                    pass

    async def keep(self, journal: Journal) -> int:
        """Write them; where Postgres is away they wait for the next time. Answers how many were written."""
        late = list(self._gathered)
        self._gathered.clear()
        self._bytes = 0
        try:
            await journal.keep_late(late)
        except Unavailable:
            for one in late:
                self.add(one)
            return 0
        except Broken as exc:
            _log.error("late_results_refused", results=len(late), reason=str(exc))
            return 0
        return len(late)


def _size(late: LateAttempt) -> int:
    return len(late.value or "") + ROW_BYTES


def _is_outcome(record: Record) -> bool:
    return record.kind is Kind.STEP and record.status in _OUTCOMES and record.cost is not None


def _late(
    run: LiveRun, item: str, attempt: int, status: Status, value: str | None, error: ErrorInfo | None, cost: float
) -> LateAttempt:
    return LateAttempt(run.run_id, run.claim.fence, item, attempt, status, value, error, run.state.key_of(item), cost)
