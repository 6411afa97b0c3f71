"""Slow questions fill their own pool: lookups are answered 503 quickly, and the doors go on accepting."""

import asyncio
from collections import Counter

from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.run_queries import PostgresRunQueries
from schemas.errors import Unavailable
from tests.integration.faults.gateways import open_gateway
from tests.integration.faults.others import transaction
from tests.integration.log.lab import Lab


async def test_doors_accept_while_the_pool_of_lookups_is_exhausted(lab: Lab) -> None:
    async with open_gateway(lab.dsn, patience=5) as gateway:
        async with transaction(lab, "lock table automation.runs_ended in access exclusive mode"):
            lists = [asyncio.create_task(gateway.call("GET", "/v1/automation/runs")) for _ in range(20)]
            await lab.waits_for_lock("a44-gateway", 4)  # all of the pool
            async with asyncio.timeout(30):  # the pool's patience is 2 s; others use the machine
                ready = await gateway.call("GET", "/readyz")
                made = await asyncio.gather(*(gateway.run(f"order-{n}") for n in range(50)))
                quick = lists[:]
                while len(quick) > 4:
                    await asyncio.wait(quick, return_when=asyncio.FIRST_COMPLETED)
                    quick = [task for task in quick if not task.done()]
            assert ready.status == 200
            assert Counter(answer.status for answer in made) == {202: 50}
            refused = [task.result() for task in lists if task.done()]
            assert len(refused) >= 16
            assert {(one.status, one.code, one.headers["Retry-After"]) for one in refused} == {
                (503, "E_UNAVAILABLE", "1")
            }
        await asyncio.gather(*lists)
        assert (await gateway.call("GET", "/v1/automation/runs")).status == 200


async def test_behind_many_who_wait_already_nobody_queues(lab: Lab) -> None:
    async with open_pool(lab.dsn, "test", size=1, patience=30) as pool:
        queries = PostgresRunQueries(pool)
        async with transaction(lab, "lock table automation.runs_ended in access exclusive mode"):
            asking = [asyncio.create_task(queries.find_run("shop", f"run_{n}")) for n in range(60)]
            async with asyncio.timeout(20):
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            assert all(isinstance(task.exception(), Unavailable) for task in done)
        results = await asyncio.gather(*asking, return_exceptions=True)
        refused = [result for result in results if isinstance(result, Unavailable)]
        assert len(refused) in {9, 10}  # fifty wait, beside the one that has the connection, if it was there already
        assert [result for result in results if result is not None and result not in refused] == []
