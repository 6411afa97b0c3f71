"""Restate: runs are called through the HTTP ingress, each call waits for the result."""

import asyncio

import aiohttp
import uvloop

from benchmarks.peers.closed_loop import drive, order

TRIES, BETWEEN_SECONDS, FIRST_ERROR = 300, 0.1, 300


async def post(session: aiohttp.ClientSession, url: str, body: dict[str, str]) -> None:
    async with session.post(url, json=body) as answer:
        text = await answer.text()
        if answer.status >= FIRST_ERROR:
            raise RuntimeError(f"{answer.status}: {text}")


async def register(session: aiohttp.ClientSession, admin: str, worker: str) -> None:
    """As soon as server and worker are up."""
    for _ in range(TRIES):
        try:
            return await post(session, f"{admin}/deployments", {"uri": worker})
        except (aiohttp.ClientError, RuntimeError):
            await asyncio.sleep(BETWEEN_SECONDS)
    raise RuntimeError("the server did not take the deployment")


async def main() -> None:
    given = order()
    endless = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=endless) as session:
        await register(session, given["admin"], given["worker"])
        await asyncio.sleep(2)  # it tells its partitions

        async def call(run: str) -> None:
            await post(session, f"{given['ingress']}/W3/{run}/run", {"run": run})

        await drive(call, given)


if __name__ == "__main__":
    uvloop.run(main())
