"""Temporal: the three steps as activities of a workflow; its worker has more pollers and slots than by default.

`python -m benchmarks.peers.temporal_flow ADDRESS` is the worker.
"""

import asyncio
import sys
from datetime import timedelta

import uvloop
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

QUEUE = "w3"
TRIES, BETWEEN_SECONDS = 200, 0.1


@activity.defn
async def noop() -> dict[str, bool]:
    return {"ok": True}


@workflow.defn
class W3:
    @workflow.run
    async def run(self, _run: str) -> dict[str, bool]:
        for _ in range(3):
            await workflow.execute_activity(noop, start_to_close_timeout=timedelta(seconds=10))
        return {"ok": True}


async def connected(address: str) -> Client:
    for _ in range(TRIES):
        try:
            return await Client.connect(address)
        except RuntimeError:
            await asyncio.sleep(BETWEEN_SECONDS)
    raise RuntimeError("the server does not answer")


async def serve(address: str) -> None:
    worker = Worker(
        await connected(address),
        task_queue=QUEUE,
        workflows=[W3],
        activities=[noop],
        max_concurrent_workflow_tasks=200,
        max_concurrent_activities=500,
        max_cached_workflows=2000,
        max_concurrent_workflow_task_polls=10,
        max_concurrent_activity_task_polls=10,
    )
    await worker.run()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
