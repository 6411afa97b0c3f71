"""Ingest on the real log: every record has one fate, once, and a lane's order is the order of its offsets."""

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from processors.ports.door import Acceptance
from schemas.envelope import body_hash, encode_envelope
from schemas.errors import Unavailable
from schemas.ids import new_event_id
from schemas.relay_numbers import SEQ_HEADER
from tests.integration.log.lab import DEAD_LETTERS, EVENTS, PROJECT
from tests.integration.log.polls import FLOW, Stage, Topic


async def test_a_poll_becomes_runs_grants_and_offsets_in_one_transaction(stage: Stage) -> None:
    topic, other = Topic(), Topic(partition=1)
    records = [topic.direct(data=f'{{"lane":"{lane}"}}') for lane in "aabc"] + [other.direct(data='{"lane":"d"}')]
    await stage.ingest(records)
    assert await stage.lab.states() == {"granted": 3, "pending": 2}
    assert len(stage.told.grants) == 3
    assert await stage.lab.rows("select partition, next_offset, seq from automation.ingest_progress order by 1") == [
        {"partition": 0, "next_offset": 4, "seq": 0},
        {"partition": 1, "next_offset": 1, "seq": 0},
    ]
    (row,) = await stage.lab.rows("select * from automation.live_runs where lane = 'c'")
    assert (row["workflow_id"], row["input"], row["event_type"]) == ("wf_orders", '{"lane":"c"}', "order.paid")
    xids = await stage.lab.column(
        "select xmin::text from automation.ingest_progress union select xmin::text from automation.inbox"
        " union select xmin::text from automation.idempotency_keys"
    )
    assert len(xids) == 1


async def test_the_same_poll_twice_makes_one_set_of_runs(stage: Stage) -> None:
    topic = Topic()
    records = [topic.direct(), topic.relayed(), topic.direct(type="nobody.asked"), topic.record(b"rubbish")]
    await stage.ingest(records)
    before = await stage.lab.column("select run_id from automation.live_runs order by 1")
    other = await stage.restarted()
    await other.ingest(records)
    assert await stage.lab.column("select run_id from automation.live_runs order by 1") == before
    assert len(before) == 2
    assert other.told.grants == []
    assert await stage.lab.value("select count(*) from automation.dead_letters") == 1
    assert await stage.lab.value("select count(*) from automation.outbox") == 1


async def test_two_owners_of_a_partition_make_one_set_of_runs(stage: Stage) -> None:
    topic, other = Topic(), await stage.restarted()
    records = [topic.direct(data=f'{{"lane":"{n % 3}"}}') for n in range(50)]
    await asyncio.gather(stage.ingest(records[:40]), other.ingest(records))
    assert await stage.lab.value("select count(*) from automation.live_runs") == 50
    for lane in "012":
        rows = await stage.lab.rows(
            "select event_id, lane_seq from automation.live_runs where lane = %s order by 2", lane
        )
        assert [row["lane_seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert [row["event_id"] for row in rows] == sorted(row["event_id"] for row in rows)


async def test_offsets_are_kept_where_the_runs_are(stage: Stage) -> None:
    topic = Topic()
    await stage.ingest([topic.direct() for _ in range(3)])
    other = await stage.restarted()
    assert await other.log.positions(EVENTS, "topic-1", [0, 1]) == {0: 3}
    assert await other.log.positions(EVENTS, "topic-2", [0, 1]) == {}  # made again: from its beginning


async def test_a_topic_that_was_made_again_starts_over_and_the_relay_s_numbers_go_on(stage: Stage) -> None:
    topic = Topic()
    records = [topic.relayed() for _ in range(5)]
    await stage.ingest(records)
    other = await stage.restarted()
    assert await other.log.positions(EVENTS, "topic-2", [0]) == {}
    again = Topic()
    for record in records[3:]:
        record.offset = again.record(b"").offset
    again.seq = 5
    await other.ingest([*records[3:], again.relayed()])
    assert await stage.lab.value("select count(*) from automation.live_runs") == 6
    (row,) = await stage.lab.rows("select topic_id, next_offset, seq from automation.ingest_progress")
    assert row == {"topic_id": "topic-2", "next_offset": 3, "seq": 6}


async def test_a_direct_record_with_the_key_of_a_door_s_event_makes_no_run(stage: Stage) -> None:
    topic, door = Topic(), await stage.lab.door()
    accepted = topic.event(idempotency_key="order-1")
    await door.accept(
        Acceptance(
            project_id=PROJECT,
            idempotency_key="order-1",
            key_source="header",
            body_hash=body_hash(accepted.data),
            event_id=accepted.id,
            partition_key="p",
            run_id=None,
            envelope=encode_envelope(accepted),
        )
    )
    await stage.ingest([topic.direct(idempotency_key="order-1"), topic.record(encode_envelope(accepted), relayed=True)])
    assert await stage.lab.column("select event_id from automation.live_runs") == [accepted.id]
    assert await stage.lab.rows("select from automation.dead_letters") == []


async def test_an_event_is_what_its_door_accepted_whatever_stands_before_it_under_its_id(stage: Stage) -> None:
    topic = Topic()
    accepted = topic.event(data='{"lane":"accepted"}')
    forged = topic.direct(id=accepted.id, data='{"lane":"forged"}', idempotency_key="other")
    relayed = topic.record(encode_envelope(accepted), relayed=True)
    await stage.ingest([forged, relayed, topic.direct(id=accepted.id, data='{"lane":"forged"}')])
    (row,) = await stage.lab.rows("select input, idempotency_key, accepted_at from automation.live_runs")
    assert (row["input"], row["idempotency_key"]) == (accepted.data, accepted.idempotency_key)
    assert row["accepted_at"] == datetime.fromtimestamp(topic.millis / 1000, UTC)


async def test_the_same_key_with_another_body_becomes_a_dead_letter(stage: Stage) -> None:
    topic = Topic()
    first = topic.direct(idempotency_key="order-1")
    await stage.ingest([first])
    records = [
        topic.direct(idempotency_key="order-1", data='{"lane":"b"}'),
        topic.direct(idempotency_key="order-1"),
        topic.direct(idempotency_key="order-2"),
        topic.direct(idempotency_key="order-2", data='{"lane":"c"}'),
    ]
    await stage.ingest(records)
    assert await stage.lab.value("select count(*) from automation.live_runs") == 2
    letters = await stage.lab.rows("select * from automation.dead_letters order by source_offset")
    assert [(row["error_code"], row["source_offset"]) for row in letters] == [
        ("E_IDEMPOTENCY_CONFLICT", records[0].offset),
        ("E_IDEMPOTENCY_CONFLICT", records[3].offset),
    ]
    assert bytes(letters[0]["raw"]) == records[0].value
    outbox = await stage.lab.rows("select topic, partition_key, headers, value from automation.outbox order by id")
    assert {row["topic"] for row in outbox} == {DEAD_LETTERS}
    assert [bytes(row["value"]) for row in outbox] == [records[0].value, records[3].value]
    assert json.loads(outbox[0]["headers"])["a44-error-code"] == "E_IDEMPOTENCY_CONFLICT"
    assert outbox[0]["partition_key"] == letters[0]["dead_letter_id"]


async def test_b10_a_hundred_records_with_one_new_key_that_two_owners_read_at_once_make_one_run(stage: Stage) -> None:
    """Two partitions, two processes; each record names an event of its own."""
    topics, other = (Topic(), Topic(partition=1)), await stage.restarted()
    ours, theirs = ([topic.direct(idempotency_key="order-1") for _ in range(50)] for topic in topics)
    await asyncio.gather(stage.ingest(ours), other.ingest(theirs))
    told = {
        outcome: sum(one.measures.value("direct_records_total", outcome) for one in (stage, other))
        for outcome in ("created", "deduplicated", "conflict", "filtered")
    }
    assert told == {"created": 1, "deduplicated": 99, "conflict": 0, "filtered": 0}
    assert await stage.lab.value("select count(*) from automation.live_runs") == 1
    assert await stage.lab.rows("select from automation.dead_letters") == []


async def test_b09_two_projects_may_give_their_events_and_keys_the_same_names(stage: Stage) -> None:
    topic = Topic()
    await stage.catalog.publish("other", {"orders.yaml": FLOW}, dev=False, actor="test")
    alike = {"id": "signup-77", "idempotency_key": "signup:77"}
    ours = [topic.direct(**alike), topic.direct(**alike, project_id="other", data='{"lane":"b"}')]
    await stage.ingest(ours)  # in one transaction, then in one each, then again
    alike = {"id": "signup-78", "idempotency_key": "signup:78"}
    for project in (PROJECT, "other"):
        await stage.ingest([topic.direct(**alike, project_id=project)])
    await stage.ingest(ours)
    runs = await stage.lab.rows("select project_id, event_id, run_id from automation.live_runs order by 1, 2")
    assert [(row["project_id"], row["event_id"]) for row in runs] == [
        (project, event) for project in ("other", PROJECT) for event in ("signup-77", "signup-78")
    ]
    keys = await stage.lab.rows("select project_id, event_id, run_id from automation.idempotency_keys order by 1, 2")
    assert keys == runs
    assert len({row["run_id"] for row in runs}) == 4
    assert await stage.lab.rows("select from automation.dead_letters") == []


async def test_what_a_door_accepted_is_run_whosever_its_key_is_by_now(stage: Stage) -> None:
    """The window passed while the event lay in Kafka, and the key was used again."""
    topic = Topic()
    first = topic.event(idempotency_key="order-1")
    second = topic.event(idempotency_key="order-1", data='{"lane":"b"}')
    door = await stage.lab.door()
    for envelope in (first, second):
        await stage.lab.rows("update automation.idempotency_keys set expires_at = clock_timestamp()")
        await door.accept(
            Acceptance(PROJECT, "order-1", "header", body_hash(envelope.data), envelope.id, "p", None, b"x")
        )
    await stage.ingest([topic.record(encode_envelope(one), relayed=True) for one in (first, second)])
    assert await stage.lab.column("select lane from automation.live_runs order by lane") == ["a", "b"]


async def test_the_run_of_an_event_that_was_long_under_way_has_the_id_that_its_door_told(stage: Stage) -> None:
    topic = Topic()
    topic.millis -= 3 * 86_400_000
    told = topic.event()
    await stage.ingest([topic.record(encode_envelope(told), relayed=True)])
    (row,) = await stage.lab.rows("select run_id, accepted_at from automation.live_runs")
    assert row["run_id"][4:14] == told.id[4:14]
    assert row["accepted_at"] == datetime.fromtimestamp(topic.millis / 1000, UTC)


async def test_bytes_that_are_no_event_become_a_dead_letter_with_those_bytes(stage: Stage) -> None:
    topic = Topic()
    records = [topic.record(b"\xc3\x01rubbish\x00\xff"), topic.record(None), topic.record(b'{"id":1}'), topic.direct()]
    await stage.ingest(records)
    letters = await stage.lab.rows("select * from automation.dead_letters order by source_offset")
    assert [(row["reason"], row["queue_id"], row["source_offset"]) for row in letters] == [
        ("undecodable", "ingest", 0),
        ("undecodable", "ingest", 1),
        ("undecodable", "ingest", 2),
    ]
    assert [row["raw"] and bytes(row["raw"]) for row in letters] == [records[0].value, None, records[2].value]
    assert await stage.lab.value("select count(*) from automation.outbox") == 3
    assert await stage.lab.states() == {"granted": 1}


async def test_a_filter_that_cannot_be_asked_is_never_a_silent_drop(stage: Stage) -> None:
    topic = Topic()
    fits, misses = '{"amount":500}', '{"amount":5}'
    wrong = '{"amount":"a lot"}'
    await stage.ingest([topic.direct(type="order.large", data=data) for data in (fits, misses, wrong)])
    assert await stage.lab.column("select input from automation.live_runs") == [fits]
    letters = await stage.lab.rows("select error_code, reason, project_id from automation.dead_letters")
    assert letters == [{"error_code": "E_FILTER_ERROR", "reason": "permanent_error", "project_id": PROJECT}]
    assert stage.ingest.measures.value("events_filtered_total") == 1


async def test_data_that_does_not_fit_its_schema_is_a_dead_letter_and_leaves_its_key_free(stage: Stage) -> None:
    schema = "{type: object, properties: {amount: {type: integer}}}"
    files = {"events.yaml": f"events:\n  - {{type: order.paid, schema: {schema}}}\n"}
    await stage.catalog.publish(PROJECT, files, dev=False, actor="tok_1")
    topic = Topic()
    unfit = topic.direct(data='{"lane":"a","amount":"hunter2"}', idempotency_key="k")
    fits, accepted = '{"lane":"a","amount":5}', '{"lane":"b","amount":"by a door, before there was a schema"}'
    await stage.ingest([unfit, topic.direct(data=fits, idempotency_key="k"), topic.relayed(data=accepted)])
    (letter,) = await stage.lab.rows("select * from automation.dead_letters")
    assert (letter["error_code"], letter["reason"], letter["project_id"]) == (
        "E_EVENT_SCHEMA",
        "permanent_error",
        PROJECT,
    )
    assert "at /amount it is a text of 7 characters; expected integer" in letter["summary"]
    assert (bytes(letter["raw"]), letter["workflow_id"]) == (unfit.value, None)
    assert await stage.lab.column("select input from automation.live_runs order by lane") == [fits, accepted]
    assert await stage.lab.value("select count(*) from automation.outbox") == 1


async def test_a_trigger_may_keep_what_its_filter_let_pass_by_once_and_for_a_week(stage: Stage) -> None:
    topic = Topic()
    records = [topic.direct(type="order.watched", data=f'{{"amount":{amount}}}') for amount in (500, 5, 6)]
    await stage.ingest([*records, topic.direct(type="order.large", data='{"amount":5}')])
    await (await stage.restarted()).ingest(records)
    kept = await stage.catalog.misses(PROJECT, "trg_watched_orders_event", 10)
    assert [(one.event_type, one.idempotency_key) for one in kept] == [
        ("order.watched", "k-0-2"),
        ("order.watched", "k-0-1"),
    ]
    assert await stage.catalog.misses("other", "trg_watched_orders_event", 10) == []
    assert stage.ingest.measures.value("events_filtered_total") == 3
    await stage.lab.rows("update automation.filter_misses set missed_at = missed_at - interval '8 days'")
    await stage.lab.schedule().sweep()
    assert await stage.catalog.misses(PROJECT, "trg_watched_orders_event", 10) == []


async def test_an_event_that_is_too_old_is_a_dead_letter_and_a_recent_one_says_until_when_it_is_wanted(
    stage: Stage,
) -> None:
    topic, now = Topic(), datetime.now(UTC)
    recent = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    old = topic.direct(type="order.recent", occurred_at="2026-07-19T14:00:00Z")
    await stage.ingest([old, topic.direct(type="order.recent", occurred_at=recent)])
    (letter,) = await stage.lab.rows("select * from automation.dead_letters")
    assert (letter["reason"], letter["error_code"]) == ("event_too_old", "E_EVENT_TOO_OLD")
    assert (letter["run_id"], letter["project_id"], bytes(letter["raw"])) == (None, PROJECT, old.value)
    (row,) = await stage.lab.rows("select stale_at - occurred_at as span from automation.live_runs")
    assert row["span"] == timedelta(hours=1)


async def test_a_record_that_stands_twice_in_a_poll_makes_its_run_once(stage: Stage) -> None:
    topic = Topic()
    value = topic.direct().value
    await stage.ingest([topic.record(value), topic.record(value), topic.record(value, relayed=True)])
    assert await stage.lab.value("select count(*) from automation.live_runs") == 1
    assert await stage.lab.value("select tail_seq from automation.lanes") == 1


async def test_places_in_a_lane_follow_the_offsets_within_a_poll_and_across_polls(stage: Stage) -> None:
    topic = Topic()
    records = [topic.direct(data=f'{{"lane":"{n % 4}"}}') for n in range(80)]
    for start in range(0, 80, 16):
        await stage.ingest(records[start : start + 16])
    for lane in range(4):
        rows = await stage.lab.rows(
            "select event_id, lane_seq, ready from automation.live_runs where lane = %s order by lane_seq", str(lane)
        )
        assert [row["lane_seq"] for row in rows] == list(range(1, 21))
        assert [row["event_id"] for row in rows] == sorted(row["event_id"] for row in rows)
        assert [row["ready"] for row in rows] == [True] + [False] * 19


async def test_a_trigger_s_own_key_is_the_lane_of_what_it_makes(stage: Stage) -> None:
    topic = Topic()
    await stage.ingest([topic.direct(type="order.sorted", data=f'{{"shop": {n % 2}}}') for n in range(4)])
    rows = await stage.lab.rows(
        "select lane, partition_key, lane_seq from automation.live_runs order by lane, lane_seq"
    )
    told = [(row["lane"], row["partition_key"], row["lane_seq"]) for row in rows]
    assert told == [("shop-0", "shop-0", 1), ("shop-0", "shop-0", 2), ("shop-1", "shop-1", 1), ("shop-1", "shop-1", 2)]


async def test_a_poll_of_two_thousand_records_is_quick(stage: Stage) -> None:
    topic = Topic()
    await stage.ingest([topic.direct()])
    records = [topic.direct(data=f'{{"lane":"{n % 200}"}}') for n in range(2000)]
    began = time.perf_counter()
    await stage.ingest(records)
    seconds = time.perf_counter() - began
    print(f"2,000 records in one poll: {seconds * 1000:.0f} ms, {2000 / seconds:,.0f} a second")  # noqa: T201
    assert Counter(await stage.lab.states()) == {"granted": 3, "pending": 1998}
    assert seconds < 5


async def test_when_the_connection_breaks_the_records_come_again(stage: Stage) -> None:
    topic = Topic()
    await stage.ingest([topic.direct()])
    for n in range(10):
        records = [topic.direct(data=f'{{"lane":"x{n}"}}') for _ in range(3)]
        backend = await stage.lab.backend("a44-ingest")
        polling = asyncio.ensure_future(stage.ingest(records))
        await asyncio.sleep(n * 0.001)
        await stage.lab.rows("select pg_terminate_backend(%s)", backend)
        await asyncio.wait([polling])
        with suppress(Unavailable):  # the kill may have come behind the commit: this notices
            await stage.ingest(records)
        await stage.ingest(records)
    assert await stage.lab.value("select count(*) from automation.live_runs") == 31
    assert await stage.lab.value("select next_offset from automation.ingest_progress") == 31


async def test_a_number_that_a_producer_made_up_costs_nobody_a_run(stage: Stage) -> None:
    topic = Topic()
    records = []
    for made_up in (b"7", b"999999999", b"-1", b"many", b"9" * 40, b""):
        record = topic.direct()
        record.headers = ((SEQ_HEADER, made_up),)
        records.append(record)
    records += [topic.relayed() for _ in range(3)]
    await stage.ingest(records)
    assert await stage.lab.value("select count(*) from automation.live_runs") == len(records)


async def test_a_time_that_a_producer_made_up_is_not_believed(stage: Stage) -> None:
    topic = Topic()
    await stage.ingest([topic.relayed(id=new_event_id(0)), topic.relayed(id=new_event_id(2**47))])
    rows = await stage.lab.rows("select run_id, accepted_at from automation.live_runs")
    now = datetime.now(UTC)
    assert len(rows) == 2
    assert all(abs((row["accepted_at"] - now).total_seconds()) < 60 for row in rows)
    assert {row["run_id"][:8] for row in rows} == {new_event_id(topic.millis)[4:8].join(("run_", ""))}


async def test_times_and_headers_that_a_producer_may_write_stop_nobody(stage: Stage) -> None:
    topic = Topic()
    odd = [replace(topic.record(b"no event"), timestamp_ms=millis) for millis in (-1, 2**53, 2**63 - 1)]
    bare = replace(topic.direct(data='{"lane":"c"}'), headers=((SEQ_HEADER, None),))
    await stage.ingest([*odd, bare])
    assert len(await stage.lab.rows("select dead_letter_id from automation.dead_letters")) == len(odd)
    assert await stage.lab.states() == {"granted": 1}
