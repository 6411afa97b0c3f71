"""What processes hold of the broker in memory: producer, admin, and a consumer with the contract of the real one."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from processors.ports.streams import BatchHandler, Delivery, Later, Outgoing, Positions, Record
from schemas.errors import Refused, Unavailable
from tests.simulation.memory.broker import Broker, Member
from topology.topics import TopicSpec

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class MemoryProducer:
    """Implements `Producer`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        return list(await self._broker.write(self._broker.network.loop.current(), batch))

    async def ready(self, topics: Collection[str]) -> None:
        """There is nothing to get to know."""

    def send_unawaited(self, batch: Sequence[Outgoing]) -> None:
        self._broker.write(self._broker.network.loop.current(), batch)

    async def aclose(self) -> None:
        """Nothing is held."""


class MemoryAdmin:
    """Implements `Admin`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def ensure_topics(self, specs: Sequence[TopicSpec], replication: int = 1) -> list[str]:
        await self._hop()
        return self._broker.ensure(specs)

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        await self._hop()
        return {name: self._broker.topics[name].topic_id for name in topics if name in self._broker.topics}

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        await self._hop()
        return {partition: self._broker.end(topic, partition) for partition in partitions}

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        await self._hop()
        return {name: len(self._broker.topics[name].partitions) for name in topics if name in self._broker.topics}

    async def _hop(self) -> None:
        await self._broker.network.hop()
        if not self._broker.is_up:
            raise Unavailable("E_UNAVAILABLE", "Kafka does not answer")


class MemoryConsumer:
    """Reads a topic in a group and hands whole polls to a handler, until told to stop."""

    def __init__(
        self, broker: Broker, group: str, topic: str, handler: BatchHandler, positions: Positions | None, most: int
    ) -> None:
        self._broker = broker
        self._group, self._topic = group, topic
        self._handler = handler
        self._positions = positions
        self._most = most

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            topic_id = self._broker.topic_id(self._topic) if self._broker.is_up else None
            if topic_id is None:
                await asyncio.sleep(LONGEST_PAUSE / 4)
                continue
            member = Member(self._broker.network.loop.current(), self._group, self._topic, topic_id)
            self._broker.join(member)
            try:
                while not stop.is_set() and self._is_in(member):
                    await self._hold(member, stop)
            finally:
                self._broker.leave(member)

    def _is_in(self, member: Member) -> bool:
        return member.generation > 0 and self._broker.topic_id(self._topic) in {member.topic_id, None}

    async def _hold(self, member: Member, stop: asyncio.Event) -> None:
        """One generation of the group."""
        generation = member.generation

        def is_over() -> bool:
            return stop.is_set() or member.generation != generation or not self._is_in(member)

        offsets = await self._located(member, is_over)
        paused: set[int] = set()
        while not is_over():
            wanted = {partition: at for partition, at in offsets.items() if partition not in paused}
            records = self._broker.fetch(member.topic_id, self._topic, wanted, self._most)
            if not records:
                await member.news.wait()
                member.news.clear()
                continue
            await self._broker.network.hop()
            later = None if is_over() else await self._taken(records, is_over)
            if later is None:
                return
            for record in records:
                offsets[record.partition] = record.offset + 1
            for partition, one in later.items():
                offsets[partition] = one.offset
                paused.add(partition)
                self._broker.network.after(one.seconds, self._resume, paused, partition, member)
            for partition, offset in offsets.items():
                if self._broker.network.chance(0.5):
                    self._broker.commit_offset(member, partition, offset)
                if self._broker.network.chance(self._broker.repeating):
                    offsets[partition] = max(offset - 3, 0)

    @staticmethod
    def _resume(paused: set[int], partition: int, member: Member) -> None:
        paused.discard(partition)
        member.news.set()

    async def _taken(self, records: Sequence[Record], is_over: Callable[[], bool]) -> dict[int, Later] | None:
        later: dict[int, Later] = {}

        async def hand_over() -> None:
            later.update(await self._handler(records) or {})

        return later if await self._retried(hand_over, is_over) else None

    async def _located(self, member: Member, is_over: Callable[[], bool]) -> dict[int, int]:
        await self._broker.network.hop()
        partitions, found = member.partitions, dict[int, int]()
        if self._positions is None:
            found = self._broker.committed(member)
        else:
            positions = self._positions

            async def ask() -> None:
                found.update(await positions.positions(self._topic, member.topic_id, partitions))

            await self._retried(ask, is_over)
        ends = {p: self._broker.end_of(self._topic, p) for p in partitions}
        return {p: found[p] if found.get(p, 0) <= ends[p] and p in found else 0 for p in partitions}

    async def _retried(self, attempt: Callable[[], Coroutine[Any, Any, None]], is_over: Callable[[], bool]) -> bool:
        pause = FIRST_PAUSE
        while not is_over():
            try:
                await attempt()
            except Unavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return True
        return False
