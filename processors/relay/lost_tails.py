"""Ends of partitions that the broker lost: ingest has read all there is, and lacks numbers that were given.

A gap in the middle is seen by ingest, in the record behind it. Behind the end there is none.
"""

import time
from typing import Final

from processors.ports.relay import RelayStore, Unread
from processors.ports.streams import Admin

LOOK_SECONDS: Final = 5.0


class LostTails:
    """Asks the broker only where ingest is behind, and believes what two looks in a row say.

    The embedded broker tells an end too low: it counts the last batch as one record, so that an ingest inside of it
    seems to have read all. One that goes on is found elsewhere by the second look.
    """

    def __init__(self, store: RelayStore, admin: Admin) -> None:
        self._store = store
        self._admin = admin
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._seen: dict[tuple[str, int], Unread] = {}

    async def topics(self) -> frozenset[str]:
        """Topics with such an end, asked for now and then. Raises Unavailable.

        In this order: what was given; where the partitions end, which is behind all of that unless it was lost; how far
        ingest is.
        """
        if time.monotonic() < self._look_at:
            return frozenset()
        self._look_at = time.monotonic() + LOOK_SECONDS
        given = await self._store.unread()
        ends = {}
        for topic in {topic for topic, _ in given}:
            found = await self._admin.end_offsets(topic, [partition for name, partition in given if name == topic])
            ends.update({(topic, partition): end for partition, end in found.items()})
        still = await self._store.unread() if given else {}
        before, self._seen = (
            self._seen,
            {
                place: now
                for place, now in still.items()
                if place in given and place in ends and now.seq < given[place].given and now.next_offset >= ends[place]
            },
        )
        return frozenset(
            place[0] for place, now in self._seen.items() if place in before and _is_at(before[place], now)
        )


def _is_at(before: Unread, now: Unread) -> bool:
    return (before.seq, before.next_offset) == (now.seq, now.next_offset)
