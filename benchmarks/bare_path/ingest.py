"""The bare ingest: a poll of events becomes granted runs and their announcement in one commit, then commands."""

import asyncio

from benchmarks.bare_path.surroundings import (
    COMMANDS,
    EVENTS,
    IDLE_MS,
    MOST_RECORDS,
    from_json,
    statement,
    surroundings,
    text,
)

CREATE, TELL = statement("create"), statement("tell")


async def main() -> None:
    async with surroundings(EVENTS) as (conn, consumer, producer):
        cursor = conn.cursor(binary=True)
        while True:
            polled = await consumer.getmany(timeout_ms=IDLE_MS, max_records=MOST_RECORDS)
            events = [from_json(record.value) for records in polled.values() for record in records]
            if not events:
                continue
            runs = [event["n"] for event in events]
            lanes = [event["partition_key"] for event in events]
            async with conn.pipeline(), conn.transaction():
                await cursor.execute(CREATE, (runs, lanes, [text(event["data"]) for event in events]))
                await cursor.execute(TELL, (COMMANDS, lanes, [str(run) for run in runs]))
            for run, lane in zip(runs, lanes, strict=True):
                await producer.send(COMMANDS, str(run).encode(), key=lane.encode())
            await consumer.commit()


if __name__ == "__main__":
    asyncio.run(main())
