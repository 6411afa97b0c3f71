"""Temporal: each run is started and its result awaited."""

import uvloop

from benchmarks.peers.closed_loop import drive, order
from benchmarks.peers.temporal_flow import QUEUE, W3, connected


async def main() -> None:
    given = order()
    client = await connected(given["address"])

    async def call(run: str) -> None:
        handle = await client.start_workflow(W3.run, run, id=run, task_queue=QUEUE)
        await handle.result()

    await drive(call, given)


if __name__ == "__main__":
    uvloop.run(main())
