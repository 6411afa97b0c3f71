"""Senders at every door, who try again only where no byte of an answer came; whatever else goes wrong is kept."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
from confluent_kafka import Producer

from ops.client import Client, Signed
from ops.local import LocalStack

LANES = 6
PAUSE_SECONDS = 0.15
EVENTS_TOPIC = "a44.events.v1"
# The gateway refuses connections, or closes one on which no answer had begun.
TRY_AGAIN = (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


def body_of(lane: int) -> bytes:
    return json.dumps({"lane": f"l{lane}"}).encode()


@dataclass
class Load:
    """Sends until told to stop. `sent` counts what was accepted, by door."""

    stack: LocalStack
    signed: list[Signed]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    sent: Counter[str] = field(default_factory=Counter)
    tried_again: int = 0
    failures: list[str] = field(default_factory=list)
    ends_of_streams: list[str] = field(default_factory=list)
    longest_gap: float = 0.0

    @classmethod
    async def prepared(cls, stack: LocalStack, client: Client) -> "Load":
        signed = [await asyncio.to_thread(client.sign, "trg_hooked_webhook", body_of(lane)) for lane in range(LANES)]
        return cls(stack, signed)

    async def run(self, watched: str) -> None:
        async with aiohttp.ClientSession(self.stack.url) as session, asyncio.TaskGroup() as group:
            group.create_task(self._hooks(session))
            group.create_task(self._manual(session))
            group.create_task(self._events())
            group.create_task(self._follow(session, watched))

    async def _hooks(self, session: aiohttp.ClientSession) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            one = self.signed[number % LANES]
            headers = {
                "Content-Type": "application/json",
                **one.headers,
                "A44-Idempotency-Key": f"hook-{number}",
            }
            await self._post(session, "hook", one.path, body_of(number % LANES), headers)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _manual(self, session: aiohttp.ClientSession) -> None:
        number = 0
        path = "/v1/automation/workflows/wf_short/runs"
        while not self.stop.is_set():
            number += 1
            headers = {**self._token(), "A44-Idempotency-Key": f"manual-{number}"}
            query = "?wait=2" if number % 3 == 0 else ""
            body = json.dumps({"input": {"lane": f"m{number % LANES}", "number": f"manual-{number}"}}).encode()
            await self._post(session, "manual", path + query, body, {**headers, "Content-Type": "application/json"})
            await asyncio.sleep(PAUSE_SECONDS)

    async def _events(self) -> None:
        producer = Producer({"bootstrap.servers": self.stack.kafka_bootstrap, "enable.idempotence": True})
        while not self.stop.is_set():
            self.sent["event"] += 1
            number = self.sent["event"]
            envelope = {
                "id": f"evt_{number}",
                "type": "orders.paid",
                "idempotency_key": f"order:{number}",
                "partition_key": f"p{number % LANES}",
                "occurred_at": "2026-11-29T00:00:00Z",
                "attempt": 1,
                "project_id": "dev",
                "data": {"lane": f"e{number % LANES}", "number": f"event-{number}"},
            }
            producer.produce(EVENTS_TOPIC, key=envelope["partition_key"], value=json.dumps(envelope))
            producer.poll(0)
            await asyncio.sleep(PAUSE_SECONDS)
        if await asyncio.to_thread(producer.flush, 30):
            self.failures.append("events were not taken by the broker")

    async def _follow(self, session: aiohttp.ClientSession, run_id: str) -> None:
        """The log of a run that does not end: each stream has to end by a word, and not in the middle."""
        path = f"/v1/automation/runs/{run_id}/log"
        while not self.stop.is_set():
            try:
                async with session.get(path, headers=self._token(), timeout=aiohttp.ClientTimeout(None)) as response:
                    told = asyncio.create_task(response.text())
                    ways = [told, asyncio.create_task(self.stop.wait())]
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ways:
                        if not way.done():
                            way.cancel()
                    if told.done():
                        self.ends_of_streams.append(told.result())
            except TRY_AGAIN:
                await asyncio.sleep(0.05)
            except aiohttp.ClientPayloadError as exc:
                self.failures.append(f"a stream broke: {exc}")

    async def _post(
        self, session: aiohttp.ClientSession, door: str, path: str, body: bytes, headers: dict[str, str]
    ) -> None:
        began = time.monotonic()
        while True:
            try:
                async with session.post(path, data=body, headers=headers) as response:
                    text = await response.text()
            except TRY_AGAIN:
                self.tried_again += 1
                await asyncio.sleep(0.05)
                continue
            except aiohttp.ClientError as exc:
                self.failures.append(f"{door}: {exc!r}")
                return
            self.longest_gap = max(self.longest_gap, time.monotonic() - began)
            if response.status in (200, 202):
                self.sent[door] += 1
            else:
                self.failures.append(f"{door}: {response.status} {text}")
            return

    def _token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.stack.token}"}
