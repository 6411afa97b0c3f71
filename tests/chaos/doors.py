"""Asks at the gateways as senders do: the same key again, at the other gateway, until there is an answer."""

import asyncio
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ops.client.exchange import Exchange, Reply
from schemas.errors import Unavailable
from tests.chaos.orders import Order

SENDERS = 8
TIMEOUT_SECONDS = 5.0
PATIENCE_SECONDS = 180.0
ANSWERED = (200, 202)
AGAIN = (429, 502, 503, 504)


class Doors:
    """`secrets` are those of the webhooks by path. `failures` counts askings that had to be repeated."""

    def __init__(self, urls: Sequence[str], token: str, secrets: Mapping[str, str]) -> None:
        self._urls = urls
        self._token = token
        self._secrets = secrets
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="sender")
        self._turn = 0
        self._held: list[Exchange] = []
        self.failures = 0
        self.refusals: list[str] = []

    async def ask(self, order: Order) -> None:
        """Until it is accepted; an order that is refused, or never answered, stays without `accepted`."""
        self._turn += 1
        turn = self._turn
        order.first_door = self._urls[turn % len(self._urls)]
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            reply = await asyncio.get_running_loop().run_in_executor(self._pool, self._try, order, turn)
            if reply is not None and reply.status in ANSWERED:
                self._note(order, json.loads(reply.body))
                return
            if reply is not None and reply.status not in AGAIN:
                self.refusals.append(f"{order.key}: {reply.status} {reply.body.decode(errors='replace')[:300]}")
                return
            self.failures += 1
            turn += 1
            await asyncio.sleep(0.05)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for exchange in self._held:
            exchange.close()

    def _note(self, order: Order, answer: Mapping[str, str]) -> None:
        order.accepted = time.time()
        order.run_id = answer.get("run_id")
        order.event_id = answer.get("event_id")

    def _try(self, order: Order, turn: int) -> Reply | None:
        exchange = self._exchange(self._urls[turn % len(self._urls)])
        path, body, headers = self._request(order)
        try:
            return exchange.send("POST", path, body, {"Content-Type": "application/json", **headers})
        except Unavailable:
            return None

    def _request(self, order: Order) -> tuple[str, bytes, dict[str, str]]:
        headers = {"A44-Idempotency-Key": order.key}
        data = json.dumps(order.data).encode()
        if order.way == "webhook":
            path = f"/v1/dev/trg_{order.workflow}_webhook"
            at = str(int(time.time()))
            signature = hmac.new(self._secrets[path].encode(), at.encode() + b"." + data, hashlib.sha256).hexdigest()
            return path, data, {**headers, "A44-Timestamp": at, "A44-Signature": signature}
        headers["Authorization"] = f"Bearer {self._token}"
        if order.way == "hand":
            return f"/v1/automation/workflows/wf_{order.workflow}/runs", b'{"input":%b}' % data, headers
        event = {"type": f"chaos.{order.workflow}", "partition_key": order.lane, "data": order.data}
        return "/v1/automation/events", json.dumps(event).encode(), headers

    def _exchange(self, url: str) -> Exchange:
        """One a thread and gateway: a connection is nobody else's."""
        kept: dict[str, Exchange] | None = getattr(self._local, "kept", None)
        if kept is None:
            kept = self._local.kept = {}
        if url not in kept:
            kept[url] = Exchange(url, TIMEOUT_SECONDS)
            self._held.append(kept[url])
        return kept[url]
