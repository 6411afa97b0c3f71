"""Ingest follows the relay's numbers: a gap stops the partition for what the relay wrote, once, and nothing else."""

import pytest
from msgspec.structs import replace

from processors.ports.ingest import Followed
from processors.ports.streams import Record
from schemas.relay_numbers import SEQ_HEADER, sealed
from tests.integration.log.lab import EVENTS
from tests.integration.log.polls import SEAL_KEY, Stage, Topic

REQUESTS = "select partition, seq from automation.relay_requests order by 1"


async def runs(stage: Stage) -> int:
    found: int = await stage.lab.value("select count(*) from automation.live_runs")
    return found


def written(topic: Topic, count: int) -> list[Record]:
    return [topic.relayed() for _ in range(count)]


def again(topic: Topic, records: list[Record]) -> list[Record]:
    """The same rows under the same numbers, behind everything that was written so far."""
    copies = []
    for record in records:
        copy = topic.record(record.value)
        copy.headers = record.headers
        copies.append(copy)
    return copies


async def test_behind_a_gap_nothing_is_accepted_and_the_relay_is_asked_once(stage: Stage) -> None:
    topic = Topic()
    records = written(topic, 9)
    await stage.ingest([*records[:3], *records[5:7]])
    await stage.ingest(records[7:])
    assert await runs(stage) == 3
    assert stage.log.followed(EVENTS)[0] == Followed(seq=3, seen=9)
    assert await stage.lab.rows(REQUESTS) == [{"partition": 0, "seq": 4}]
    assert stage.measures.value("relay_gaps_total") == 1
    (row,) = await stage.lab.rows("select next_offset, seq, seen from automation.ingest_progress")
    assert row == {"next_offset": 9, "seq": 3, "seen": 9}


async def test_what_is_published_again_fills_the_gap_in_order(stage: Stage) -> None:
    topic = Topic()
    records = written(topic, 9)
    await stage.ingest([*records[:3], *records[5:]])
    await stage.ingest(again(topic, records[1:]))
    rows = await stage.lab.rows("select event_id, lane_seq from automation.live_runs order by lane_seq")
    assert [row["lane_seq"] for row in rows] == list(range(1, 10))
    assert [row["event_id"] for row in rows] == sorted(row["event_id"] for row in rows)
    assert stage.log.followed(EVENTS)[0] == Followed(seq=9, seen=9)


async def test_the_rest_of_an_old_stretch_asks_for_nothing_when_the_request_was_answered(stage: Stage) -> None:
    topic = Topic()
    records = written(topic, 30)
    await stage.ingest([records[0], *records[2:10]])
    await stage.lab.rows("delete from automation.relay_requests")  # as the relay does when it goes back
    await stage.ingest(records[10:20])
    other = await stage.restarted()
    await other.ingest(records[20:])
    assert await stage.lab.rows(REQUESTS) == []
    await other.ingest(again(topic, records))
    assert await runs(stage) == 30
    assert await stage.lab.rows(REQUESTS) == []


async def test_a_gap_in_what_was_published_again_is_asked_for_anew(stage: Stage) -> None:
    topic = Topic()
    records = written(topic, 9)
    await stage.ingest([records[0], *records[3:]])
    await stage.lab.rows("delete from automation.relay_requests")
    await stage.ingest(again(topic, [records[1], *records[4:]]))
    assert await stage.lab.rows(REQUESTS) == [{"partition": 0, "seq": 3}]
    await stage.ingest(again(topic, records))
    assert await runs(stage) == 9


async def test_direct_records_do_not_wait_for_a_gap(stage: Stage) -> None:
    topic = Topic()
    records = written(topic, 4)
    await stage.ingest([records[0], records[3], topic.direct()])
    assert await runs(stage) == 2


@pytest.mark.parametrize("ahead", [1, 1_000])
@pytest.mark.parametrize("seal", ["none", "of nobody", "of another number", "of another value", "of another partition"])
async def test_a_number_without_the_relay_s_seal_is_no_number_however_near_it_is(
    stage: Stage, seal: str, ahead: int
) -> None:
    """Whoever writes it makes no gap, passes for nobody, and gets the answer of a direct record."""
    topic = Topic()
    await stage.ingest(written(topic, 3))
    number, forged = 3 + ahead, topic.direct(idempotency_key="order-1")
    value = forged.value or b""
    sealed_as = {
        "of nobody": sealed(b"guessed", EVENTS, 0, number, value),
        "of another number": sealed(SEAL_KEY, EVENTS, 0, number + 1, value),
        "of another value": sealed(SEAL_KEY, EVENTS, 0, number, value + b" "),
        "of another partition": sealed(SEAL_KEY, EVENTS, 1, number, value),
    }
    headers = ((SEQ_HEADER, b"%d" % number), *sealed_as.get(seal, ())[1:])
    again = topic.direct(idempotency_key="order-1", data='{"lane":"b"}')
    await stage.ingest([replace(forged, headers=headers), replace(again, headers=headers)])
    assert await runs(stage) == 4
    assert await stage.lab.column("select error_code from automation.dead_letters") == ["E_IDEMPOTENCY_CONFLICT"]
    assert await stage.lab.rows(REQUESTS) == []
    assert stage.log.followed(EVENTS)[0] == Followed(seq=3, seen=3)


async def test_a_topic_made_again_that_begins_behind_a_gap_is_asked_for(stage: Stage) -> None:
    """Even where its first number follows the last one that was read of the old topic."""
    topic = Topic()
    records = written(topic, 9)
    await stage.ingest([records[0], *records[3:8]])
    await stage.lab.rows("delete from automation.relay_requests")
    other = await stage.restarted()
    await other.log.positions(EVENTS, "topic-2", [0])
    records[8].offset = 0
    await other.ingest(records[8:])
    assert await stage.lab.rows(REQUESTS) == [{"partition": 0, "seq": 2}]


async def test_d22_numbers_that_are_lower_or_out_of_order_make_exactly_one_run_each(stage: Stage) -> None:
    """Repetitions are known by the exact id of the event, never by a number below the last one."""
    topic = Topic()
    await stage.ingest(written(topic, 10))
    topic.seq = 3
    late = written(topic, 4)  # other events under numbers that were seen
    late[0], late[1] = late[1], late[0]
    for offset, record in enumerate(late, 10):
        record.offset = offset
    await stage.ingest([*late, *again(topic, late[::-1])])
    assert await runs(stage) == 14
    assert await stage.lab.rows(REQUESTS) == []
    assert await stage.lab.value("select count(distinct event_id) from automation.live_runs") == 14
