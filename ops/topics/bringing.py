"""Brings the broker's topics to what is declared: made, set, and grown without a key losing its order."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from ops.composition.roles.parts import topic_specs
from ops.settings import Settings
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.postgres.held_topics import HeldTopics, open_held_topics
from schemas.errors import Unavailable
from topology.topic_plan import Difference, Kind, differences
from topology.topics import TopicSpec

HOLD_SECONDS = 30.0
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Topology:
    """What is declared, and where it is to be."""

    declared: list[TopicSpec]
    prefix: str
    admin: KafkaAdmin

    async def plan(self) -> list[Difference]:
        """Everything that differs. Raises Unavailable, Refused."""
        return differences(self.declared, await self.admin.real(f"{self.prefix}."))


def topology_of(settings: Settings) -> Topology:
    """Raises Refused E_CONFIG without a broker."""
    settings.require("kafka_bootstrap", "there is no broker to look at")
    admin = KafkaAdmin(settings.kafka_bootstrap, f"{settings.owner}-topology")
    return Topology(topic_specs(settings), settings.topic_prefix, admin)


async def apply(
    topology: Topology, dsn: str, patience: float, tell: Callable[[Difference], None] = lambda _: None
) -> list[Difference]:
    """Change what can be changed, each told when it is done; answers what differs still.

    `patience` is how long a topic may take to be read up before it grows, in seconds. Raises Unavailable when it takes
    longer: then it has not grown.
    """
    specs = {spec.name: spec for spec in topology.declared}
    for one in await topology.plan():
        if not one.can_apply:
            continue
        spec = specs[one.topic]
        if one.kind is Kind.MISSING:
            await topology.admin.ensure_topics([spec])
        elif one.kind is Kind.SETTING and one.name is not None and one.declared is not None:
            await topology.admin.set_topic(one.topic, {one.name: one.declared})
        elif one.kind is Kind.PARTITIONS:
            async with open_held_topics(dsn) as held:
                await _grow(topology.admin, held, spec, patience)
        tell(one)
    return await topology.plan()


async def _grow(admin: KafkaAdmin, held: HeldTopics, spec: TopicSpec, patience: float) -> None:
    """The relay uses new partitions only when ingest has read the old ones; held, it lets ingest get there."""
    until = time.monotonic() + patience
    try:
        await held.hold(spec.name, HOLD_SECONDS)
        while unread := await held.unread(spec.name):
            if time.monotonic() >= until:
                raise Unavailable(
                    "E_UNAVAILABLE",
                    f"{spec.name} has not grown: after {patience:g} s ingest has still to read {unread} records of it; "
                    "see that ingest runs, and apply again, perhaps with a longer --wait",
                )
            await asyncio.sleep(LOOK_SECONDS)
            await held.hold(spec.name, HOLD_SECONDS)
        await admin.add_partitions(spec.name, spec.partitions)
    finally:
        await held.let_go(spec.name)
