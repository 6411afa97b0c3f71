"""Declared topics against real ones, without a broker."""

from topology.topic_plan import Kind, Real, differences
from topology.topics import Topics, TopicSpec

EVENTS = TopicSpec("a44.events.v1", 8, 86_400_000)


def real(partitions: int = 8, **settings: str) -> Real:
    told = {name.replace(".", "_"): value for name, value in EVENTS.settings().items()} | settings
    return Real(partitions, {name.replace("_", "."): value for name, value in told.items()})


def test_what_is_as_declared_makes_no_difference() -> None:
    assert differences([EVENTS], {EVENTS.name: real()}) == []


def test_every_topic_of_an_empty_broker_is_missing_and_can_be_made() -> None:
    found = differences(Topics().all(), {})
    assert [one.topic for one in found] == [spec.name for spec in Topics().all()]
    assert {(one.kind, one.can_apply) for one in found} == {(Kind.MISSING, True)}


def test_topics_grow_and_never_shrink() -> None:
    [grows] = differences([EVENTS], {EVENTS.name: real(4)})
    assert (grows.kind, grows.declared, grows.real, grows.can_apply) == (Kind.PARTITIONS, "8", "4", True)
    [stays] = differences([EVENTS], {EVENTS.name: real(12)})
    assert (stays.kind, stays.can_apply) == (Kind.PARTITIONS, False)
    assert "declare 12" in stays.way


def test_retention_and_the_longest_record_are_settings_and_one_that_is_not_told_is_no_difference() -> None:
    [shorter] = differences([EVENTS], {EVENTS.name: real(retention_ms="1000")})
    assert (shorter.kind, shorter.name, shorter.declared, shorter.real) == (
        Kind.SETTING,
        "retention.ms",
        "86400000",
        "1000",
    )
    [smaller] = differences([EVENTS], {EVENTS.name: real(max_message_bytes="1000")})
    assert (smaller.name, smaller.can_apply) == ("max.message.bytes", True)
    assert differences([EVENTS], {EVENTS.name: Real(8, {})}) == []


def test_a_topic_that_nobody_declares_is_told_and_left() -> None:
    [unknown] = differences([EVENTS], {EVENTS.name: real(), "a44.old.v1": Real(2, {})})
    assert (unknown.topic, unknown.kind, unknown.can_apply) == ("a44.old.v1", Kind.UNKNOWN, False)
