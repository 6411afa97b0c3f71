"""The broker's topics against the declared ones: told apart, made, set; grown where the broker can."""

import os

import pytest

from ops.topics import Topology, apply
from processors.adapters.kafka.admin import KafkaAdmin
from schemas.errors import Refused
from topology.topic_plan import Kind
from topology.topics import TopicSpec

IS_APACHE = os.environ.get("A44_TEST_BROKER") == "apache"
HOUR, DAY = 3_600_000, 86_400_000


def topology(bootstrap: str, prefix: str, *specs: TopicSpec) -> Topology:
    return Topology(list(specs), prefix.rstrip("."), KafkaAdmin(bootstrap, "topology-test"))


async def test_what_is_missing_is_made_and_then_nothing_differs(
    kafka_bootstrap: str, topic_prefix: str, migrated_database: str
) -> None:
    name = f"{topic_prefix}events.v1"
    here = topology(kafka_bootstrap, topic_prefix, TopicSpec(name, 3, DAY))
    assert [(one.topic, one.kind) for one in await here.plan()] == [(name, Kind.MISSING)]
    assert await apply(here, migrated_database, 5.0) == []
    assert await here.plan() == []
    [unknown] = await topology(kafka_bootstrap, topic_prefix).plan()
    assert (unknown.topic, unknown.kind) == (name, Kind.UNKNOWN)


async def test_settings_are_brought_to_what_is_declared(
    kafka_bootstrap: str, topic_prefix: str, migrated_database: str
) -> None:
    name = f"{topic_prefix}events.v1"
    await apply(topology(kafka_bootstrap, topic_prefix, TopicSpec(name, 1, DAY)), migrated_database, 5.0)
    here = topology(kafka_bootstrap, topic_prefix, TopicSpec(name, 1, HOUR, 500_000))
    assert {one.name: one.declared for one in await here.plan()} == {
        "retention.ms": str(HOUR),
        "max.message.bytes": "500000",
    }
    assert await apply(here, migrated_database, 5.0) == []


async def test_a_topic_grows_and_one_with_too_many_partitions_is_left(
    kafka_bootstrap: str, topic_prefix: str, migrated_database: str
) -> None:
    name = f"{topic_prefix}events.v1"
    await apply(topology(kafka_bootstrap, topic_prefix, TopicSpec(name, 2, DAY)), migrated_database, 5.0)
    grown = topology(kafka_bootstrap, topic_prefix, TopicSpec(name, 4, DAY))
    if not IS_APACHE:
        with pytest.raises(Refused, match="as the embedded one cannot"):
            await apply(grown, migrated_database, 5.0)
        return
    assert await apply(grown, migrated_database, 5.0) == []
    smaller = topology(kafka_bootstrap, topic_prefix, TopicSpec(name, 2, DAY))
    [left] = await apply(smaller, migrated_database, 5.0)
    assert (left.real, left.can_apply) == ("4", False)
