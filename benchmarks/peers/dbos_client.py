"""DBOS: runs go through the queue to two workers, or are executed by the process that starts them.

In-process the plain functions run on a few threads, which is the fastest way that was found.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import uvloop
from dbos import DBOS, DBOSClient, SetWorkflowID

from benchmarks.peers.closed_loop import drive, order
from benchmarks.peers.dbos_flow import QUEUE, VERSION, launch, plain_w3, w3

POOL, RESULT_SECONDS, SOON_SECONDS, THREADS = 20, 1.0, 0.02, 40


async def through_the_queue(given: dict[str, object]) -> None:
    client = DBOSClient(
        system_database_url=str(given["database"]).replace("postgresql://", "postgresql+psycopg://"),
        system_database_pool_size=POOL,
    )

    async def run(name: str, poll: float) -> None:
        asked = {"workflow_name": w3.__qualname__, "queue_name": QUEUE, "workflow_id": name, "app_version": VERSION}
        handle = await client.enqueue_async(asked, name)
        await handle.get_result(polling_interval_sec=poll)

    await drive(lambda name: run(name, RESULT_SECONDS), given, alone=lambda name: run(name, SOON_SECONDS))


async def in_process(given: dict[str, object]) -> None:
    launch(str(given["database"]), "local")

    def run(name: str) -> None:
        with SetWorkflowID(name):
            plain_w3(name)

    await drive(lambda name: asyncio.to_thread(run, name), given)
    DBOS.destroy()


async def main() -> None:
    given = order()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    await (through_the_queue if given["way"] == "queue" else in_process)(given)


if __name__ == "__main__":
    uvloop.run(main())
