"""The topics that the relay publishes to: as they were when it did, and as the broker tells of them now.

A topic with another id has lost its records. One with more partitions puts keys elsewhere, so that
nothing more goes out until its readers have everything.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from processors.ports.relay import Topic
from processors.ports.streams import Admin
from schemas.errors import Broken, Unavailable
from topology.topics import TopicSpec

_FRESH_SECONDS: Final = 10.0


class TopicsInUse:
    """Asks again now and then, and after each failure. Topics of `specs` are made when they are missing."""

    def __init__(self, admin: Admin, specs: Sequence[TopicSpec]) -> None:
        self._admin = admin
        self._specs = {spec.name: spec for spec in specs}
        self._kept: Mapping[str, Topic] = {}
        self._used: dict[str, Topic] = {}
        self._found: dict[str, Topic] = {}
        self._asked_at = -_FRESH_SECONDS

    def expect(self, kept: Mapping[str, Topic]) -> None:
        """How the topics were used so far; what was seen here itself counts more."""
        self._kept = kept
        self._used = {**kept, **self._used}

    async def lost(self) -> set[str]:
        """Topics that are not the ones they were: the broker has lost what was in them."""
        if not self._found or time.monotonic() - self._asked_at > _FRESH_SECONDS:
            await self._ask(set())
        return self.found_lost()

    def found_lost(self) -> set[str]:
        """The same, by what the broker told last."""
        return {name for name, found in self._found.items() if self._used.get(name, found).topic_id != found.topic_id}

    async def find(self, names: set[str]) -> None:
        """Know at least these topics. Raises Unavailable while one does not exist."""
        if not names <= self._found.keys():
            await self._ask(names)

    def grown(self, names: Collection[str]) -> list[str]:
        """Those of the topics that have more partitions than they were used with."""
        used = {name: self._used[name].partitions for name in names if name in self._used}
        return [name for name, count in used.items() if count is not None and count != self._found[name].partitions]

    def use(self, names: Iterable[str]) -> None:
        """From now on these topics are used as they are. Not for one that is lost: what it held would stay so."""
        for name in names:
            used, found = self._used.get(name), self._found[name]
            if used is not None and used.topic_id != found.topic_id:
                raise Broken("E_INTERNAL", f"the topic {name} was {used.topic_id}, is {found.topic_id}: go back first")
            self._used[name] = found

    def use_anew(self, names: Iterable[str]) -> None:
        """These topics were lost; what they held goes out again."""
        self._used.update((name, self._found[name]) for name in names)

    def unkept(self) -> dict[str, Topic]:
        """What nobody noted yet of how the topics are used."""
        return {name: used for name, used in self._used.items() if self._kept.get(name) != used}

    def kept(self) -> None:
        self._kept = dict(self._used)

    def partitions(self, name: str) -> int:
        return self._used[name].partitions or 1

    def forget(self) -> None:
        """Ask before anything else is done."""
        self._found = {}

    async def _ask(self, names: set[str]) -> None:
        wanted = sorted(names | self._found.keys() | self._used.keys() | self._specs.keys())
        counts = await self._admin.partition_counts(wanted)
        makeable = [self._specs[name] for name in wanted if name not in counts and name in self._specs]
        if makeable:
            await self._admin.ensure_topics(makeable)
            counts = await self._admin.partition_counts(wanted)
        ids = await self._admin.topic_ids(wanted)
        missing = sorted(names - (counts.keys() & ids.keys()))
        if missing:
            raise Unavailable("E_UNAVAILABLE", f"the topic {missing[0]} does not exist")
        self._found = {name: Topic(ids[name], counts[name]) for name in counts if name in ids}
        self._asked_at = time.monotonic()
