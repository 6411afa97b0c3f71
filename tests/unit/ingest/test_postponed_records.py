"""What cannot be handled now waits on a retry topic: as it was, no shorter than told, passed where no order is kept."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from processors.ingest.postponing import MOST_TRIES, Ladder, Source, source_of
from processors.ports.relay import OutboxRow
from processors.ports.streams import Record
from processors.relay.numbering import Numbering
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import body_hash
from schemas.errors import Unavailable
from schemas.ids import new_event_id
from schemas.relay_numbers import sealed
from schemas.retry_letters import read_letter
from tests.simulation.memory.tables import SEAL_KEY, Key
from tests.unit.gateway.catalogs import PROJECT
from tests.unit.ingest.waiting_room import (
    DELAYS,
    FRAMED,
    IN_ORDER,
    SETTLE,
    TOPIC,
    Published,
    Stage,
    record,
    small,
    spend,
    spoiled,
    stored,
)


@pytest_asyncio.fixture
async def stage() -> Stage:
    return Stage(SETTLE)


async def test_what_cannot_be_read_now_is_put_off_and_its_neighbours_are_taken(stage: Stage) -> None:
    await stage._begin(TOPIC)
    before = stage.log.now()
    poll = [record(0, small("a")), record(1, stored("big")), record(2, FRAMED), record(3, small("b"))]
    assert await stage.take(*poll) == {}
    assert {event_id for _, event_id in stage.tables.inbox} == {"a", "b"}
    assert stage.tables.progress[TOPIC, 0].next_offset == 4
    told = [read_letter(letter.headers) for letter in stage.letters("retry.10s")]
    assert [(one.code, one.tries, one.offset) for one in told] == [
        ("E_STORAGE_UNAVAILABLE", 1, 1),
        ("E_SCHEMA_REGISTRY_UNAVAILABLE", 1, 2),
    ]
    assert all(9.99 < (one.due - before).total_seconds() < 12.0 for one in told)
    assert stage.measures.value("records_postponed_total", "E_STORAGE_UNAVAILABLE") == 1
    assert stage.tables.dead_letters == {}


@given(
    st.builds(
        Record,
        topic=st.text("abc.-", min_size=1, max_size=20),
        partition=st.integers(0, 1000),
        offset=st.integers(0, 2**62),
        key=st.none() | st.binary(max_size=40),
        value=st.binary(min_size=1, max_size=40),
        headers=st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=5).map(tuple),
        timestamp_ms=st.integers(-1, 2**48),
    ),
    st.booleans(),
    st.integers(0, 200),
)
def test_what_comes_back_is_the_record_that_came_first(first: Record, is_relayed: bool, tries: int) -> None:
    source = Source(first, is_relayed, tries)
    letter = Ladder(DELAYS).letter(source, "E_STORAGE_UNAVAILABLE", datetime(2026, 7, 19, tzinfo=UTC))
    assert letter is not None
    assert letter.value == first.value
    row = OutboxRow(1, 1, letter.topic, letter.partition_key, letter.headers, letter.value)
    out = Numbering(0).outgoing(row, 2)
    assert b"\0" not in out.key  # Postgres holds no such text
    back = Record(letter.topic, 0, 0, out.key, out.value, out.headers, 1)
    assert source_of(back, is_relayed=True) == Source(first, is_relayed, tries + 1)


async def test_it_waits_ten_seconds_a_minute_and_ten_minutes_each_time_after_that(stage: Stage) -> None:
    await stage.take(record(5, stored("big")))
    for topic in ("retry.10s", "retry.1m", "retry.10m", "retry.10m"):
        letter = await stage.fall(topic)
        assert (read_letter(letter.headers).topic, read_letter(letter.headers).offset) == (TOPIC, 5)
    (last,) = stage.letters("retry.10m")
    told = read_letter(last.headers)
    assert told.tries == 5
    assert 600.0 <= (told.due - stage.log.now()).total_seconds() + 2.0 < 604.0


async def test_after_a_day_it_is_a_dead_letter_from_where_it_first_stood_that_can_be_redriven() -> None:
    for value, codes in ((stored("big"), "E_STORAGE_UNAVAILABLE"), (FRAMED, "E_SCHEMA_REGISTRY_UNAVAILABLE")):
        stage = Stage(SETTLE)
        await spend(stage, value, codes)
        (dead,) = stage.tables.dead_letters.values()
        assert (dead.reason, dead.error_code) == ("max_attempts_exceeded", codes)
        assert (dead.topic, dead.partition, dead.offset, dead.raw) == (TOPIC, 0, 5, value)
        assert f"after {MOST_TRIES} tries" in dead.summary
        if value != FRAMED:
            assert (dead.project_id, dead.trigger_id, dead.workflow_id) == (PROJECT, "trg_settle_event", "wf_settle")
            assert dead.envelope is not None
            assert json.loads(dead.envelope)["id"] == "big"
        assert stage.letters("retry.10m") == []


async def test_each_trigger_has_a_dead_letter_of_its_own_which_a_redrive_asks_its_filter_for() -> None:
    filtered = SETTLE.replace("{ event: order.paid }", "{ event: order.paid, filter: data.n == 1 }")
    stage = Stage(filtered, SETTLE.replace("settle", "notify"))
    await spend(stage, stored("big"), "E_STORAGE_UNAVAILABLE")
    told = {(dead.trigger_id, dead.envelope is None) for dead in stage.tables.dead_letters.values()}
    assert told == {("trg_notify_event", False), ("trg_settle_event", False)}


async def test_a_dead_letter_whose_schema_could_not_be_asked_is_no_triggers_and_so_is_not_redriven() -> None:
    schema = "events: [{ type: order.paid, schema: { type: object, required: [n] } }]"
    stage = Stage(SETTLE, schema)
    await spend(stage, stored("big"), "E_STORAGE_UNAVAILABLE")
    assert [dead.trigger_id for dead in stage.tables.dead_letters.values()] == [None]


async def test_an_event_that_only_its_schema_asks_for_is_put_off_as_well() -> None:
    stage = Stage("events: [{ type: order.paid, schema: { type: object, required: [m] } }]")
    assert await stage.take(record(0, stored("big"))) == {}
    (letter,) = stage.letters("retry.10s")
    stage.log.ahead += 10.0
    stage.remote.come_back()
    await stage.hand_back(letter)
    assert [(dead.error_code, dead.topic) for dead in stage.tables.dead_letters.values()] == [("E_EVENT_SCHEMA", TOPIC)]


async def test_nothing_comes_back_before_it_is_due_and_nothing_that_is_due_waits_for_it(stage: Stage) -> None:
    await stage.take(record(0, stored("first")))
    (first,) = stage.letters("retry.10s")
    stage.log.ahead += 9.0
    await stage.take(record(1, stored("second")))
    (second,) = stage.letters("retry.10s")
    other = msgspec.structs.replace(second, partition=1, offset=0)
    later = await stage.hand_back(first, other)
    assert {partition: one.offset for partition, one in later.items()} == {0: 0, 1: 0}
    assert 0 < later[0].seconds <= 1.0
    assert 9.0 < later[1].seconds <= 10.0
    stage.log.ahead += 1.0
    stage.remote.come_back()
    later = await stage.hand_back(first, second, other)
    assert {partition: one.offset for partition, one in later.items()} == {0: 1, 1: 0}
    assert {event_id for _, event_id in stage.tables.inbox} == {"first"}
    assert stage.tables.progress["retry.10s", 0].next_offset == 1
    stage.log.ahead += 9.0
    assert await stage.hand_back(second, other) == {}
    assert len(stage.tables.live) == 2


async def test_it_makes_the_run_that_it_would_have_made_and_only_once(stage: Stage) -> None:
    """Whoever reads it twice, and whoever read the event before the storage came back."""
    await stage.take(record(0, stored("big")), record(1, FRAMED))
    letters = stage.letters("retry.10s")
    stage.remote.come_back()
    await stage.take(record(9, stored("big")))  # the producer has sent it again
    stage.log.ahead += 10.0
    for _ in range(2):
        await stage.hand_back(*letters)
    assert sorted(live.run.event_id for live in stage.tables.live.values()) == ["big", "framed"]
    assert stage.tables.dead_letters == {}
    assert len(stage.tables.inbox) == 2


async def test_an_event_that_a_door_has_accepted_comes_back_as_one(stage: Stage) -> None:
    """Its key was taken at the door, for another event by now, and what was accepted stays in force."""
    await stage._begin(TOPIC)
    name = new_event_id(int(stage.log.now().timestamp() * 1000))
    until = stage.log.now() + timedelta(days=1)
    stage.tables.keys[PROJECT, f"key-{name}"] = Key("another", None, body_hash("{}"), until, until)
    value = stored(name)
    await stage.take(record(0, value, sealed(SEAL_KEY, TOPIC, 0, 1, value)))
    assert stage.tables.progress[TOPIC, 0].seq == 1
    (letter,) = stage.letters("retry.10s")
    stage.remote.come_back()
    stage.log.ahead += 10.0
    await stage.hand_back(letter)
    (live,) = stage.tables.live.values()
    assert live.run.event_id == name
    assert stage.tables.dead_letters == {}


async def test_a_conflict_that_is_found_late_names_the_place_where_the_record_first_stood(stage: Stage) -> None:
    await stage.take(
        record(3, stored("big", idempotency_key="shared")), record(4, small("b", idempotency_key="shared"))
    )
    (letter,) = stage.letters("retry.10s")
    stage.remote.come_back()
    stage.log.ahead += 10.0
    await stage.hand_back(letter)
    (dead,) = stage.tables.dead_letters.values()
    assert (dead.error_code, dead.topic, dead.partition, dead.offset) == ("E_IDEMPOTENCY_CONFLICT", TOPIC, 0, 3)


async def test_a_record_that_is_read_twice_is_put_off_once(stage: Stage) -> None:
    """The process died, or lost the answer, between its commit and the word to Kafka; another reads the same again."""
    stage.log.loses_answers = True
    with pytest.raises(Unavailable):
        await stage.take(record(0, stored("big")))
    stage.log.loses_answers = False
    await stage.take(record(0, stored("big")))
    assert len(stage.letters("retry.10s")) == 1


async def test_a_letter_that_is_read_twice_goes_to_the_next_topic_once(stage: Stage) -> None:
    await stage.take(record(0, stored("big")))
    (letter,) = stage.letters("retry.10s")
    again = msgspec.structs.replace(letter, offset=1)
    stage.log.ahead += 10.0
    await stage.hand_back(letter, again)
    await stage.hand_back(letter)
    assert len(stage.letters("retry.1m")) == 1


async def test_another_record_in_the_place_of_one_that_a_broker_lost_is_put_off_by_itself(stage: Stage) -> None:
    await stage.take(record(0, stored("big")))
    await stage.take(record(0, stored("other")))
    assert len(stage.letters("retry.10s")) == 2


async def test_a_record_whose_lane_keeps_its_order_is_never_passed(stage: Stage) -> None:
    stage = Stage(SETTLE, IN_ORDER)
    poll = [record(0, stored("loose")), record(1, stored("ordered", type="order.shipped")), record(2, small("behind"))]
    later = await stage.take(*poll, record(0, small("beside"), partition=1))
    assert {partition: one.offset for partition, one in later.items()} == {0: 1}
    assert [read_letter(one.headers).offset for one in stage.letters("retry.10s")] == [0]
    assert {event_id for _, event_id in stage.tables.inbox} == {"beside"}
    assert stage.tables.progress[TOPIC, 0].next_offset == 1
    assert stage.measures.value("partition_waits_total", "E_STORAGE_UNAVAILABLE") == 1


async def test_a_record_that_nobody_can_read_is_not_passed_as_long_as_any_queue_keeps_an_order(stage: Stage) -> None:
    stage = Stage(SETTLE, IN_ORDER)
    later = await stage.take(record(0, FRAMED), record(1, small("behind")))
    assert {partition: one.offset for partition, one in later.items()} == {0: 0}
    assert stage.tables.outbox == []


async def test_an_order_that_is_wanted_by_now_does_not_stop_what_was_passed_before(stage: Stage) -> None:
    await stage.take(record(0, FRAMED))
    (letter,) = stage.letters("retry.10s")
    stage.ingest._catalog = CurrentCatalog(Published({"a.yaml": SETTLE, "b.yaml": IN_ORDER}))  # type: ignore[arg-type]
    stage.log.ahead += 10.0
    assert await stage.hand_back(letter) == {}
    assert len(stage.letters("retry.1m")) == 1


async def test_what_would_not_fit_a_retry_topic_waits_in_its_partition(stage: Stage) -> None:
    later = await stage.take(record(0, FRAMED + b"x" * 999_900))
    assert {partition: one.offset for partition, one in later.items()} == {0: 0}
    assert stage.tables.outbox == []


async def test_without_retry_topics_everything_waits_in_its_partition() -> None:
    stage = Stage(SETTLE, delays={})
    later = await stage.take(record(0, stored("big")), record(1, small("behind")))
    assert {partition: one.offset for partition, one in later.items()} == {0: 0}


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("a44-retry-due", b"soon"),
        ("a44-source-topic", b"a\0b"),
        ("a44-source-partition", b"2147483648"),
        ("a44-source-offset", b"9223372036854775808"),
        ("a44-source-headers", b"[1]"),
        ("a44-source-key", b"?"),
    ],
)
async def test_what_ingest_did_not_put_on_a_retry_topic_is_a_dead_letter(
    stage: Stage, header: str, value: bytes
) -> None:
    await stage.take(record(0, stored("big")))
    (letter,) = stage.letters("retry.10s")
    assert await stage.hand_back(spoiled(letter, header, value)) == {}
    (dead,) = stage.tables.dead_letters.values()
    assert (dead.error_code, dead.topic, dead.offset) == ("E_ENVELOPE_INVALID", "retry.10s", 0)
    assert header in dead.summary


async def test_what_the_relay_did_not_put_on_a_retry_topic_is_a_dead_letter(stage: Stage) -> None:
    """A letter may say that a door has accepted its event: it is asked who wrote that."""
    await stage.take(record(0, stored("big")))
    (letter,) = stage.letters("retry.10s")
    told = tuple((name, b"true" if name == "a44-source-relayed" else value) for name, value in letter.headers)
    stray = record(0, stored("other")).headers
    stage.log.ahead += 10.0
    for offset, headers in enumerate((told[2:], told[:1] + told[2:], (*told, ("more", b"")), stray)):
        assert await stage.hand_back(msgspec.structs.replace(letter, headers=headers, offset=offset)) == {}
    assert [(one.error_code, one.topic) for one in stage.tables.dead_letters.values()] == [
        ("E_ENVELOPE_INVALID", "retry.10s")
    ] * 4
    assert stage.tables.live == {}


async def test_a_due_time_that_no_topic_makes_holds_nothing_up(stage: Stage) -> None:
    await stage.take(record(0, stored("big")))
    (letter,) = stage.letters("retry.10s")
    assert await stage.hand_back(spoiled(letter, "a44-retry-due", b"9999-01-01T00:00:00Z")) == {}
    assert len(stage.letters("retry.1m")) == 1
