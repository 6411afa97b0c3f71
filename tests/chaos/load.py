"""Sends the orders at a steady pace, and no faster than the service ends them."""

import asyncio
import time
from collections.abc import Sequence

from tests.chaos.doors import SENDERS, Doors
from tests.chaos.looker import Looker
from tests.chaos.orders import Order
from tests.chaos.records import Records

TICK_SECONDS = 0.05
LONGEST_TICK_SECONDS = 1.0
MOST_OPEN = 1500
COUNT_SECONDS = 0.5


class Load:
    """`rate` is orders a second, and may be changed; at most `MOST_OPEN` more are sent than have ended."""

    def __init__(self, orders: Sequence[Order], rate: float, doors: Doors, records: Records, looker: Looker) -> None:
        self.orders = orders
        self.rate = rate
        self.sent = 0
        self.ended = 0
        self._credit = 0.0
        self._doors = doors
        self._records = records
        self._looker = looker
        self._asking: set[asyncio.Task[None]] = set()
        self._seats = asyncio.Semaphore(SENDERS)

    def hurry(self, many: int) -> None:
        """So many at once, beside the steady ones."""
        self._credit += many

    async def run(self) -> None:
        """Until everything is sent and has an answer."""
        counting = asyncio.create_task(self._count())
        last = time.monotonic()
        try:
            while self.sent < len(self.orders):
                await asyncio.sleep(TICK_SECONDS)
                now = time.monotonic()
                self._credit += min(now - last, LONGEST_TICK_SECONDS) * self.rate
                last = now
                room = min(len(self.orders), self.ended + MOST_OPEN) - self.sent
                many = max(0, min(int(self._credit), room))
                self._credit -= many
                for order in self.orders[self.sent : self.sent + many]:
                    self._send(order)
                self.sent += many
                self._records.poll()
            while self._asking or self._records.waiting:
                self._records.poll()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            counting.cancel()

    def _send(self, order: Order) -> None:
        if order.way == "kafka":
            self._records.send(order)
            return
        task = asyncio.create_task(self._ask(order))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, order: Order) -> None:
        async with self._seats:
            await self._doors.ask(order)

    async def _count(self) -> None:
        while True:
            self.ended = await self._looker.one("select count(*) from automation.runs_ended")
            await asyncio.sleep(COUNT_SECONDS)
