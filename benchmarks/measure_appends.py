"""Measures raw append through the journal writer beside a bare loop of the same INSERT, in turn, on one database.

    python benchmarks/measure_appends.py

The journal takes records as the executor has them, and each batch is fenced. The bare loop knows no fence, and its
arrays were written out before the clock starts: begin, the INSERT, commit. The last line is one JSON object.
"""

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figures import Figures, Scale, tell
from benchmarks.own_database import own_database
from ops.embedded import EmbeddedStack
from ops.local import LocalStack
from processors.adapters.postgres.arrays import with_literals
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.journal_batch import plan
from processors.ports.journal import Batch, Entry
from schemas.ids import new_event_id, run_id
from schemas.records import Kind, Record, Status

BATCHES = 10  # a turn
RUNS, STEPS = 200, ("one", "two", "three")  # a batch: three records of each of so many runs
LEASE = 600.0
DEAD_LETTERS = "a44.dead-letters.v1"
FENCE = {"session": 0, "epoch": 0, "lease": LEASE}


async def measure(stack: LocalStack, scale: Scale) -> Figures:
    return await measure_on(stack.servers, scale)


async def measure_on(servers: EmbeddedStack, scale: Scale) -> Figures:
    """Many short turns of both, so that a slow second of the machine hits both."""
    turns = scale.of(20, 8)
    by_journal = by_hand = 0.0
    async with own_database(servers) as dsn:
        journal, made = PostgresJournal(dsn, "bench", LEASE, DEAD_LETTERS), _batches()
        conn = await connect(dsn, "bench")
        await journal.open()
        for turn in range(turns + 1):
            seconds = await _by_journal(journal, list(itertools.islice(made, BATCHES)))
            bare_seconds = await _by_hand(conn, list(itertools.islice(made, BATCHES)))
            if turn:  # the first one warms up
                by_journal, by_hand = by_journal + seconds, by_hand + bare_seconds
        await journal.aclose()
        await conn.close()
    records = turns * BATCHES * RUNS * len(STEPS)
    return {
        "append_per_s": records / by_journal,
        "bare_append_per_s": records / by_hand,
        "append_share": by_hand / by_journal,
    }


async def _by_journal(journal: PostgresJournal, batches: Sequence[Batch]) -> float:
    begun = time.perf_counter()
    for batch in batches:
        await journal.commit(batch)
    return time.perf_counter() - begun


async def _by_hand(conn: AsyncConnection[Any], batches: Sequence[Batch]) -> float:
    ready = [_insert(batch) for batch in batches]
    begun = time.perf_counter()
    for text, params in ready:
        async with conn.pipeline(), conn.transaction():
            await conn.cursor(binary=True).execute(text, params)
    return time.perf_counter() - begun


def _insert(batch: Batch) -> tuple[str, Mapping[str, Any]]:
    """The INSERT of a batch, with its arrays as they go over the wire."""
    text, params = plan(batch, FENCE, DEAD_LETTERS).statements[-1]
    return text, with_literals(params)


def _batches() -> Iterator[Batch]:
    millis = time.time_ns() // 1_000_000
    for number in itertools.count():
        names = [run_id("pj", new_event_id(millis + number), f"trg_{one}", 1) for one in range(RUNS)]
        now = datetime.now(UTC)  # what the executor decides in one go has one time
        yield Batch(entries=[_entry(name, seq, now) for seq in range(1, len(STEPS) + 1) for name in names])


def _entry(name: str, seq: int, now: datetime) -> Entry:
    step = STEPS[seq - 1]
    record = Record(
        seq, Kind.STEP, step, 1, Status.SUCCEEDED, seq - 1, final=True, key=f"{name}:{step}", value='{"ok":true}',
        cost=0.00002, recorded_at=now,
    )  # fmt: skip
    return Entry(name, 1, "dev", record)


async def main(given: argparse.Namespace) -> None:
    async with EmbeddedStack() as servers:
        figures = await measure_on(servers, Scale(given.quick))
    tell(figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer batches")
    asyncio.run(main(parser.parse_args()))
