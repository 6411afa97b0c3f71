"""The handler of a retry topic's consumer: what is due goes to ingest, which takes it for what it was at first.

A partition goes on when its next record is due, by the database's clock. What stands behind that one was put off later
by the same delay, so nothing that is due waits for it; the topics of other delays have consumers of their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from processors.ingest.ingest import Ingest
from processors.ports.streams import Later, Record
from schemas.errors import Refused, Unavailable
from schemas.retry_letters import read_letter

SLACK_SECONDS = 60.0
LOOK_SECONDS = 60.0


class Retries:
    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    async def __call__(self, records: Sequence[Record]) -> Mapping[int, Later]:
        now, later, due = self._ingest.now(), dict[int, Later](), list[Record]()
        for record in records:
            if record.partition in later:
                continue
            seconds = self._left(record, now)
            if seconds > 0:
                later[record.partition] = Later(record.offset, seconds)
            else:
                due.append(record)
        return {**later, **(await self._ingest(due) if due else {})}

    def _left(self, record: Record, now: datetime) -> float:
        """Seconds until it is due. What says that it waits for longer than any topic lets it is no letter of ours, or
        of another clock: ingest decides on it now.
        """
        try:
            seconds = (read_letter(record.headers).due - now).total_seconds()
        except Refused:
            return 0.0
        return seconds if seconds <= self._ingest.longest_delay + SLACK_SECONDS else 0.0


async def until_unread(is_unread: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
    """Return when something lies on the retry topics, or `stop` is set; one look a minute."""
    while not stop.is_set():
        with suppress(Unavailable):
            if await is_unread():
                return
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
