"""Kafka in memory: topics with ids, partitions, groups that rebalance, and everything that a broker can lose.

A member keeps its partitions until it leaves, or until its process was dead or stopped for longer than a session.
A rebalance takes nothing from the hands of whoever handles a poll: the next owner may already read the same records.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from processors.adapters.kafka.partitioner import partition_of
from processors.ports.streams import Delivery, Outgoing, Record
from schemas.errors import Unavailable
from tests.simulation.memory.network import Network
from tests.simulation.virtual_time import Process
from topology.topics import TopicSpec

SESSION_SECONDS = 3.0
NOTICE_SECONDS = 3.0
TIMEOUT_SECONDS = 10.0
OnAppend = Callable[[str, str, int, Record], None]


@dataclass(slots=True)
class Topic:
    """A partition is a list by offset; None is a record that the broker lost."""

    topic_id: str
    partitions: list[list[Record | None]]


@dataclass(eq=False, slots=True)
class Member:
    """`news` is set whenever there may be something to do; `generation` 0: not in the group (any more)."""

    process: Process
    group: str
    topic: str
    topic_id: str
    news: asyncio.Event = field(default_factory=asyncio.Event)
    generation: int = 0
    partitions: tuple[int, ...] = ()


class Broker:
    """`on_append` hears of every record with its topic's name and id. `flaky` is how often a batch
    fails in part, `losing` how often a record of the `lossy_topics` is gone once it was acknowledged, `repeating` how
    often a reader goes back a little.
    """

    def __init__(self, network: Network, on_append: OnAppend) -> None:
        self.network = network
        self.topics: dict[str, Topic] = {}
        self.is_up = True
        self.flaky = 0.0
        self.repeating = 0.0
        self.losing = 0.0
        self.lossy_topics: frozenset[str] = frozenset()
        self._on_append = on_append
        self._members: list[Member] = []
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._generations = 0
        self._ids = 0

    # topics

    def ensure(self, specs: Sequence[TopicSpec]) -> list[str]:
        made = [spec for spec in specs if spec.name not in self.topics]
        for spec in made:
            self._ids += 1
            self.topics[spec.name] = Topic(f"topic-{self._ids}", [[] for _ in range(spec.partitions)])
            self._notice(spec.name)
        return [spec.name for spec in made]

    def end(self, topic: str, partition: int) -> int:
        """Behind the last record that is there: what was lost at the end is as if it had never been."""
        kept = self.topics[topic].partitions[partition] if topic in self.topics else []
        return max((offset + 1 for offset, record in enumerate(kept) if record is not None), default=0)

    def delete(self, topic: str) -> None:
        """Its records and the offsets in it are gone; readers notice within a while."""
        self.topics.pop(topic, None)
        self._offsets = {place: at for place, at in self._offsets.items() if place[1] != topic}
        self._notice(topic)

    def _notice(self, topic: str) -> None:
        for member in self._members:
            if member.topic == topic:
                self.network.after(self.network.between(0.0, NOTICE_SECONDS), member.news.set)

    def come_back(self) -> None:
        """Readers find it within a while."""
        self.is_up = True
        for topic in dict.fromkeys(member.topic for member in self._members):
            self._notice(topic)

    def lose_everything(self) -> None:
        for topic in list(self.topics):
            self.delete(topic)

    def topic_id(self, topic: str) -> str | None:
        found = self.topics.get(topic)
        return None if found is None else found.topic_id

    # records

    def append(self, one: Outgoing) -> Delivery:
        topic = self.topics[one.topic]
        partition = partition_of(one.key, len(topic.partitions)) if one.partition is None else one.partition
        log = topic.partitions[partition]
        record = Record(
            one.topic, partition, len(log), one.key, one.value, one.headers, int(self.network.loop.now * 1e3)
        )
        self._on_append(one.topic, topic.topic_id, partition, record)
        is_lost = one.topic in self.lossy_topics and self.network.chance(self.losing)
        log.append(None if is_lost else record)
        for member in self._members:
            if member.topic == one.topic and partition in member.partitions:
                member.news.set()
        return Delivery(partition, record.offset)

    def write(self, process: Process, batch: Sequence[Outgoing]) -> "asyncio.Future[list[Delivery | Unavailable]]":
        """On the way: it arrives, or not, whatever becomes of the process."""
        future: asyncio.Future[list[Delivery | Unavailable]] = self.network.loop.create_future()
        self.network.after(self.network.delay(), self._arrive, process, batch, future)
        return future

    def _arrive(self, process: Process, batch: Sequence[Outgoing], future: "asyncio.Future[list[object]]") -> None:
        if not process.is_alive and self.network.chance(0.5):
            return
        if not self.is_up:
            late = [Unavailable("E_UNAVAILABLE", "the record was not delivered in time") for _ in batch]
            self.network.after(self.network.between(0.5, TIMEOUT_SECONDS), _answer, future, late)
            return
        self.network.after(self.network.delay(), _answer, future, self._take(batch))

    def _take(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable]:
        """In order, up to the first that fails; that one may have been written all the same."""
        fails_at = self.network.pick(len(batch)) if self.network.chance(self.flaky) else len(batch)
        answers: list[Delivery | Unavailable] = []
        for place, one in enumerate(batch):
            if place >= fails_at or one.topic not in self.topics:
                if place == fails_at and one.topic in self.topics and self.network.chance(0.5):
                    self.append(one)
                answers += [Unavailable("E_UNAVAILABLE", "Kafka did not take a record") for _ in batch[place:]]
                break
            answers.append(self.append(one))
        return answers

    def fetch(self, topic_id: str, topic: str, offsets: Mapping[int, int], most: int) -> list[Record]:
        found = self.topics.get(topic)
        if not self.is_up or found is None or found.topic_id != topic_id:
            return []
        records = []
        for partition, offset in offsets.items():
            log = found.partitions[partition]
            records += [record for record in log[offset : offset + most] if record is not None]
        return records

    def end_of(self, topic: str, partition: int) -> int:
        found = self.topics.get(topic)
        return len(found.partitions[partition]) if found else 0

    # groups

    def join(self, member: Member) -> None:
        self._members.append(member)
        self.rebalance(member.group)

    def leave(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
            member.generation, member.partitions = 0, ()
            self.rebalance(member.group)

    def miss(self, process: Process) -> None:
        """It sends no heartbeats: unless it comes back in time, its partitions go to others."""
        self.network.after(SESSION_SECONDS, self._evict, process)

    def _evict(self, process: Process) -> None:
        for member in [one for one in self._members if one.process is process]:
            if process.life.value != "running":
                self.leave(member)
                member.news.set()

    def rebalance(self, group: str) -> None:
        members = [one for one in self._members if one.group == group]
        self._generations += 1
        turn = self.network.pick(len(members)) if members else 0
        for place, member in enumerate(members):
            topic = self.topics.get(member.topic)
            count = len(topic.partitions) if topic else 0
            member.partitions = tuple(p for p in range(count) if (p + turn) % len(members) == place)
            member.generation = self._generations
            member.news.set()

    def groups(self) -> list[str]:
        return list(dict.fromkeys(member.group for member in self._members))

    def wake(self, process: Process) -> None:
        for member in self._members:
            if member.process is process:
                member.news.set()

    def commit_offset(self, member: Member, partition: int, offset: int) -> None:
        if partition in member.partitions:
            self._offsets[member.group, member.topic, partition] = offset

    def committed(self, member: Member) -> dict[int, int]:
        places = {p: (member.group, member.topic, p) for p in member.partitions}
        return {p: self._offsets[place] for p, place in places.items() if place in self._offsets}


def _answer(future: "asyncio.Future[list[object]]", answers: list[object]) -> None:
    if not future.done():
        future.set_result(answers)
