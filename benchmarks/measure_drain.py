"""Measures how long the relay takes to drain waiting rows, behind none and behind millions that were sent.

    python benchmarks/measure_drain.py --sent 10000000

Real Postgres, real broker, the relay as it is; `looks_ms` are the relay's statement alone, a batch each. The last
line is one JSON object. Figures of a busy machine scatter: compare the least of each list.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ops.embedded import EmbeddedStack
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.postgres.migrations import migrate
from processors.adapters.postgres.relay_store import PostgresRelayStore, open_relay_store
from processors.ports.relay import BATCH, Cursor
from processors.relay.relay import run_relay
from topology.topics import TopicSpec

OWNER, WAITING, ROUNDS, BLOCK = "drain", 20_000, 5, 10_000
SPEC = TopicSpec("drain.events", 8, 86_400_000)
COPY = "copy automation.outbox (xid, topic, partition_key, value) from stdin"
WAIT = (
    "insert into automation.outbox (topic, partition_key, value)"
    " select %s, 'key-' || n %% 500, convert_to(repeat('x', 200), 'UTF8') from generate_series(1, %s) n"
)


async def drain(stack: EmbeddedStack, dsn: str, conn: psycopg.AsyncConnection) -> dict[str, float]:
    """Seconds from the commit of the waiting rows until the cursor is behind the last of them."""
    await conn.execute(WAIT, (SPEC.name, WAITING))
    row = await (await conn.execute("select max(id) from automation.outbox")).fetchone()
    async with open_relay_store(dsn) as store:
        looks = await look_at_all(store)
        stop, producer = asyncio.Event(), KafkaProducer(stack.kafka_bootstrap, "drain")
        admin = KafkaAdmin(stack.kafka_bootstrap, "drain-admin")
        begun = time.perf_counter()
        relay = asyncio.create_task(run_relay(store, producer, admin, OWNER, stop, specs=[SPEC]))
        while True:
            cursor = await (await conn.execute("select cursor_id from automation.relay_shards")).fetchone()
            if cursor == row:
                break
            await asyncio.sleep(0.005)
        seconds = time.perf_counter() - begun
        stop.set()
        await relay
        await producer.aclose()
    return {"seconds": round(seconds, 3), "looks_ms": round(statistics.median(looks) * 1000, 2)}


async def look_at_all(store: PostgresRelayStore) -> list[float]:
    """Seconds of each look, without publishing."""
    hold = await store.take(OWNER)
    if hold is None:
        raise RuntimeError("somebody else holds the shard")
    horizon = await store.horizon(await store.upper())
    cursor, took = hold.cursor, []
    while True:
        begun = time.perf_counter()
        rows = await store.rows(cursor, horizon, BATCH)
        if not rows:
            return took
        took.append(time.perf_counter() - begun)
        cursor = Cursor(rows[-1].xid, rows[-1].id)


async def fill(conn: psycopg.AsyncConnection, sent: int) -> None:
    """Rows of a transaction before all others: the cursor is behind them once anything was sent."""
    block = f"5\t{SPEC.name}\tkey\t\\\\x{'78' * 40}\n" * BLOCK
    for done in range(0, sent, 50 * BLOCK):
        async with conn.cursor() as cursor, cursor.copy(COPY) as rows:
            for _ in range(0, min(50 * BLOCK, sent - done), BLOCK):
                await rows.write(block)
        print(f"{min(done + 50 * BLOCK, sent):,} rows are there", flush=True)


async def main(sent: int) -> None:
    async with EmbeddedStack() as stack:
        dsn = await stack.create_database("drain", "made-up")
        await migrate(dsn)
        figures: dict[str, object] = {"waiting": WAITING, "sent": sent}
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await drain(stack, dsn, conn)  # the first one makes topics and plans
            figures["behind_few"] = [await drain(stack, dsn, conn) for _ in range(ROUNDS)]
            begun = time.perf_counter()
            await fill(conn, sent)
            figures["seconds_of_filling"] = round(time.perf_counter() - begun, 1)
            await conn.execute("vacuum analyze automation.outbox")  # or it begins by itself in the middle
            figures["behind_many"] = [await drain(stack, dsn, conn) for _ in range(ROUNDS)]
            size = await (
                await conn.execute(
                    "select sum(pg_total_relation_size(inhrelid)) from pg_inherits"
                    " where inhparent = 'automation.outbox'::regclass"
                )
            ).fetchone()
            figures["outbox_bytes"] = int(size[0]) if size else 0
        print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sent", type=int, default=10_000_000, help="rows that were sent before")
    asyncio.run(main(parser.parse_args().sent))
