"""Measures how long a grant takes where very much waits and much has ended, beside a database where little does.

    python benchmarks/measure_grants.py --attempts 10000000

Two ways to a grant, each timed as whole transactions with their commit: the end of a run hands its turn and its slot on
(`hands_on`), and the scheduler gives a slot that became free (`feeds`). Samples of both databases are taken in turn.
The full one has 1,000,000 runs that wait in one hot lane, 100,000 lanes that wait beside it, and a history. The last
line is one JSON object; `grant_ratio` is the worse of the two.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import AsyncConnection

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figures import Figures, Scale, tell
from benchmarks.own_database import own_database
from ops.embedded import EmbeddedStack
from ops.local import LocalStack
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.ports.journal import Batch, Claim, RunEnd, RunRest

HERE = Path(__file__).parent
LIMIT, LEASE = 100, 3600.0
HOT = "hot"


@dataclass(frozen=True, slots=True)
class Size:
    """How many runs wait in the hot lane and beside it, and how many attempts were made before."""

    hot: int
    lanes: int
    attempts: int


@dataclass(slots=True)
class Subject:
    """A database under measurement, with an executor's session and a scheduler on it; what was timed, in seconds."""

    journal: PostgresJournal
    schedule: PostgresSchedule
    held: dict[str, Claim] = field(default_factory=dict)
    hands_on: list[float] = field(default_factory=list)
    feeds: list[float] = field(default_factory=list)

    async def open(self) -> None:
        """All slots of the queue are taken by this session."""
        await self.journal.open()
        await self.schedule.feed()
        self._take(await self.journal.commit(Batch(look_for_granted=True, room=LIMIT)))
        if len(self.held) != LIMIT:
            raise RuntimeError(f"{len(self.held)} runs were granted, not {LIMIT}")

    async def sample(self) -> None:
        await self._end(next(claim for claim in self.held.values() if claim.lane == HOT))
        await self._end(next(claim for claim in self.held.values() if claim.lane != HOT))
        await self._feed(next(claim for claim in self.held.values() if claim.lane != HOT))

    async def _end(self, claim: Claim) -> None:
        """The next of its lane, or of the queue, runs when the commit is there."""
        begun = time.perf_counter()
        claims = await self.journal.commit(Batch(ends=[_end_of(claim)], room=1))
        self.hands_on.append(time.perf_counter() - begun)
        del self.held[claim.run_id]
        self._take(claims)

    async def _feed(self, claim: Claim) -> None:
        """A run is blocked and its slot handed to nobody; the scheduler gives it to the next one."""
        rest = RunRest(claim.run_id, claim.project_id, claim.queue_id, "blocked", None)
        await self.journal.commit(Batch(rests=[rest]))
        del self.held[claim.run_id]
        begun = time.perf_counter()
        grants = await self.schedule.feed()
        self.feeds.append(time.perf_counter() - begun)
        self._take(await self.journal.commit(Batch(hinted=[one.run_id for one in grants], room=1)))

    def _take(self, claims: Iterable[Claim]) -> None:
        self.held |= {claim.run_id: claim for claim in claims}

    async def aclose(self) -> None:
        await self.schedule.aclose()
        await self.journal.aclose()


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    return await measure_on(stack.servers, scale, scale.of(1_000_000, 100_000))


async def measure_on(servers: EmbeddedStack, scale: Scale, attempts: int) -> Figures:
    samples = scale.of(1000, 200)
    little = Size(2 * samples, 3 * samples + LIMIT, 1)
    much = Size(scale.of(1_000_000, 100_000), scale.of(100_000, 20_000), attempts)
    async with AsyncExitStack() as resources:
        subjects = [await _subject(resources, servers, size) for size in (little, much)]
        for _ in range(samples):
            for subject in subjects:
                await subject.sample()
    empty, full = subjects
    return _figures(empty, full)


def _figures(empty: Subject, full: Subject) -> Figures:
    ratios = {}
    figures: Figures = {}
    for way in ("hands_on", "feeds"):
        small, large = _p99_ms(getattr(empty, way)), _p99_ms(getattr(full, way))
        figures |= {f"grant_{way}_p99_ms_empty": small, f"grant_{way}_p99_ms_full": large}
        ratios[way] = large / small
    worse = max(ratios, key=lambda way: ratios[way])
    return {
        "grant_p99_ms_empty": figures[f"grant_{worse}_p99_ms_empty"],
        "grant_p99_ms_full": figures[f"grant_{worse}_p99_ms_full"],
        "grant_ratio": ratios[worse],
        **figures,
    }


async def _subject(resources: AsyncExitStack, servers: EmbeddedStack, size: Size) -> Subject:
    dsn = await resources.enter_async_context(own_database(servers))
    await _fill(servers, dsn, size)
    subject = Subject(PostgresJournal(dsn, "bench", LEASE, "a44.dead-letters.v1"), PostgresSchedule(dsn))
    resources.push_async_callback(subject.aclose)
    await subject.open()
    return subject


async def _fill(servers: EmbeddedStack, dsn: str, size: Size) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        sizes = {"hot": size.hot, "lanes": size.lanes, "attempts": size.attempts}
        for script in ("waiting_runs.sql", "ended_runs.sql"):
            text = (HERE / script).read_text("utf-8").format(**sizes)
            await conn.execute(text.encode())
        await conn.execute("vacuum analyze")
    async with await AsyncConnection.connect(servers.postgres_dsn, autocommit=True) as conn:
        await conn.execute("checkpoint")  # what was filled in is written before anything is timed


def _p99_ms(seconds: Sequence[float]) -> float:
    return 1e3 * sorted(seconds)[int(len(seconds) * 0.99)]


def _end_of(claim: Claim) -> RunEnd:
    return RunEnd(
        run_id=claim.run_id,
        project_id=claim.project_id,
        queue_id=claim.queue_id,
        lane=claim.lane,
        lane_seq=claim.lane_seq,
        state="succeeded",
        result="null",
        error=None,
        dead_letter_id=None,
        reason=None,
        summary=None,
    )


async def main(given: argparse.Namespace) -> None:
    async with EmbeddedStack() as servers:
        figures = await measure_on(servers, Scale(given.quick), given.attempts)
    tell(figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of what waits, a fifth of the samples")
    parser.add_argument("--attempts", type=int, default=1_000_000, help="attempts in the history")
    asyncio.run(main(parser.parse_args()))
