"""DBOS: one worker of the queue, `python -m benchmarks.peers.dbos_worker DATABASE NAME`."""

import asyncio
import sys

import uvloop
from dbos import DBOS

from benchmarks.peers.dbos_flow import POLL_SECONDS, QUEUE, launch


async def main() -> None:
    launch(*sys.argv[1:3])
    await DBOS.register_queue_async(QUEUE, polling_interval_sec=POLL_SECONDS, on_conflict="always_update")
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
