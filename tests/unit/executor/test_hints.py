"""A hint names a run that was granted; of one that is held here already there is nothing to ask."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from processors.executor.executor import Executor
from processors.ports.bodies import BodyStart
from processors.ports.journal import Batch, Claim, LateAttempt, Mail, Release
from schemas.records import Record
from tests.unit.executor.test_order_of_effects import Heard, claim


class GenerousJournal:
    """Implements `Journal`: every hint is a claim. `asked` are the hints of each commit that had some."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Sequence[str]] = asyncio.Queue()
        self.lease_ends = time.monotonic() + 60.0
        self.renew_at = self.lease_ends

    def now(self) -> datetime:
        return datetime(2026, 7, 19, 14, 0, tzinfo=UTC)

    async def commit(self, batch: Batch) -> Sequence[Claim]:
        if batch.hinted:
            self.asked.put_nowait(batch.hinted)
        return [claim(run_id, fence=1, deadline_at=None, stale_at=None) for run_id in batch.hinted]

    async def histories(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Record]]:
        return {}

    async def unread_mail(self) -> Sequence[Mail]:
        return []

    async def keep_late(self, late: Sequence[LateAttempt]) -> None: ...
    async def release(self, runs: Sequence[Release]) -> None: ...
    async def open(self) -> None: ...
    async def give_up(self) -> None: ...
    async def aclose(self) -> None: ...


class Begun(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.starts: asyncio.Queue[str] = asyncio.Queue()

    def start(self, run: BodyStart) -> None:
        self.starts.put_nowait(run.run_id)

    async def aclose(self) -> None: ...


async def kind_of(definition_id: int) -> str:
    return "code"


async def test_a_hint_of_a_run_that_is_held_already_is_not_asked_for_again() -> None:
    journal, stop = GenerousJournal(), asyncio.Event()
    executor = Executor(journal, kind_of, "t.run-events", slots=10, lease=60.0)
    bodies = Begun()
    executor.attach({"code": bodies})
    working = asyncio.create_task(executor.run(stop))
    executor.hint([("run_1", 1)])
    assert await journal.asked.get() == ["run_1"]
    assert await bodies.starts.get() == "run_1"
    executor.hint([("run_1", 1), ("run_2", 1)])
    assert await journal.asked.get() == ["run_2"]
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
