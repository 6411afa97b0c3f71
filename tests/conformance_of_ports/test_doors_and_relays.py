"""Doors, ingest and the relay's store: one winner a key, one run an event, offsets with the runs, rows in order."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from processors.ports.door import Acceptance, Outcome
from processors.ports.ingest import Arrival, DeadRecord, Followed, Harvest, IngestLog, Known, Reached
from processors.ports.relay import Cursor, OutboxRow, Progress, RelayStore, Topic, Unread
from processors.ports.runs import NewRun
from tests.conformance_of_ports.logs import Log, new_run
from tests.integration.log.lab import EVENTS, hash_of, manual_acceptance
from tests.support.waiting import until

START = Cursor(0, 0)


def published(run: NewRun, body: str = "{}") -> Acceptance:
    """The same event as something for the events topic."""
    return replace(
        manual_acceptance(run, body), run=None, run_id=None, envelope=b"envelope of " + run.event_id.encode()
    )


def harvest_of(*runs: NewRun, offset: int = 0, direct: bool = False, body: str = "{}", seq: int = 0) -> Harvest:
    harvest = Harvest(EVENTS)
    for place, run in enumerate(runs):
        at = None if direct else datetime.now(UTC)
        harvest.arrivals.append(
            Arrival(
                run.event_id, run.project_id, run.idempotency_key, hash_of(body), at, EVENTS, 0, offset + place,
                b"raw", f"dlq_{run.event_id}",
            )
        )  # fmt: skip
        harvest.runs.append(run)
    harvest.reached[0] = Reached(offset + len(runs), Followed(seq, seq))
    return harvest


async def rows_of(store: RelayStore, cursor: Cursor = START) -> list[OutboxRow]:
    upper = await store.upper()
    return await store.rows(cursor, await store.horizon(upper), 1000)


async def begun(log: Log, topic_id: str = "topic-1") -> IngestLog:
    ingest = await log.ingest_log()
    await ingest.positions(EVENTS, topic_id, [0, 1])
    return ingest


async def test_a_relay_is_told_whether_anything_waits_behind_its_cursor(log: Log) -> None:
    store, door = await log.relay_store(), await log.door()
    assert not await store.waits(START)
    await door.accept(published(new_run(1)))
    assert await store.waits(START)
    (row,) = await rows_of(store)
    assert not await store.waits(Cursor(row.xid, row.id))


# doors


async def test_a_key_has_one_winner_whoever_asks_at_once(log: Log) -> None:
    doors, run = [await log.door(), await log.door()], new_run(1)
    others = [msgspec.structs.replace(new_run(n), idempotency_key=run.idempotency_key) for n in range(2, 12)]
    asked = [doors[n % 2].accept(published(one)) for n, one in enumerate([run, *others])]
    answers = await asyncio.gather(*asked)
    assert [answer.outcome for answer in answers].count(Outcome.CREATED) == 1
    assert len({answer.event_id for answer in answers}) == 1
    rows = await rows_of(await log.relay_store())
    assert [row.value for row in rows] == [b"envelope of " + answers[0].event_id.encode()]


@pytest.mark.parametrize("way", ["door", "kafka"])
async def test_the_window_of_a_project_goes_before_the_one_of_the_installation(log: Log, way: str) -> None:
    door, ingest, key = await log.door(), await begun(log), "order-1"
    numbers = itertools.count()

    async def take(seconds: float) -> bool:
        """Whether the key is new again."""
        await log.remember(seconds)
        run = msgspec.structs.replace(new_run(next(numbers)), idempotency_key=key)
        if way == "door":
            return (await door.accept(published(run))).outcome is Outcome.CREATED
        before = len(await log.states())
        await ingest.commit(harvest_of(run, offset=next(numbers), direct=True))
        return len(await log.states()) > before

    await log.queue()
    assert await take(3600.0)
    assert not await take(0.001)  # this one was kept for an hour
    key = "order-2"
    assert await take(0.001)
    await until(lambda: take(3600.0), "the key is new again")
    assert not await take(0.001)


async def test_a_key_with_another_body_is_a_conflict_that_names_the_first(log: Log) -> None:
    door, first = await log.door(), new_run(1)
    await door.accept(published(first))
    other = msgspec.structs.replace(new_run(2), idempotency_key=first.idempotency_key)
    answer = await door.accept(published(other, "[]"))
    assert (answer.outcome, answer.event_id) == (Outcome.CONFLICT, first.event_id)
    assert answer.first_body_hash == hash_of("{}")
    assert answer.key_age >= 0


async def test_what_an_outdated_catalog_decided_is_not_accepted_and_hears_nothing_of_keys(log: Log) -> None:
    await log.queue()
    door, before = await log.door(), await log.publish()
    first = replace(published(new_run(1)), catalog=before)
    assert (await door.accept(first)).outcome is Outcome.CREATED
    now = await log.publish()
    later, by_hand = published(new_run(2)), manual_acceptance(new_run(3))
    outdated = [replace(one, catalog=before) for one in (published(new_run(4)), later, by_hand)]
    answers = await asyncio.gather(*map(door.accept, outdated))
    assert [answer.outcome for answer in answers] == [Outcome.OUTDATED] * 3
    repeated = replace(published(new_run(5)), idempotency_key=first.idempotency_key, catalog=before)
    assert (await door.accept(repeated)).outcome is Outcome.OUTDATED
    assert (await door.accept(replace(repeated, catalog=now))).outcome is Outcome.DUPLICATE
    assert await log.states() == {}
    assert len(await rows_of(await log.relay_store())) == 1
    assert (await door.accept(replace(by_hand, catalog=now))).outcome is Outcome.CREATED
    assert len(await log.states()) == 1


async def test_a_key_whose_window_has_passed_is_new(log: Log) -> None:
    door, first = await log.door(), new_run(1)
    await door.accept(replace(published(first), window=0.0))
    other = msgspec.structs.replace(new_run(2), idempotency_key=first.idempotency_key)
    assert (await door.accept(published(other))).outcome is Outcome.CREATED


async def test_a_manual_run_is_made_and_granted_with_its_key(log: Log) -> None:
    await log.queue(limit=1)
    door, one, two = await log.door(), new_run(1), new_run(2)
    assert (await door.accept(manual_acceptance(one))).run_id == one.run_id
    await door.accept(manual_acceptance(one))
    await door.accept(manual_acceptance(two))
    assert [(grant.run_id, grant.fence, grant.lane) for grant in log.grants] == [(one.run_id, 1, "lane")]
    assert await log.states() == {one.run_id: "granted", two.run_id: "pending"}


async def test_what_was_answered_first_goes_out_first(log: Log) -> None:
    doors, runs = [await log.door(), await log.door()], [new_run(n) for n in range(10)]
    for n, run in enumerate(runs):
        await doors[n % 2].accept(published(run))
    rows = await rows_of(await log.relay_store())
    assert [row.value for row in rows] == [b"envelope of " + run.event_id.encode() for run in runs]
    assert [(row.xid, row.id) for row in rows] == sorted((row.xid, row.id) for row in rows)


# ingest


async def test_offsets_are_kept_with_the_runs(log: Log) -> None:
    await log.queue()
    ingest = await begun(log)
    runs = [new_run(n) for n in range(3)]
    grants = (await ingest.commit(harvest_of(*runs, offset=4, seq=3))).grants
    assert sorted(grant.run_id for grant in grants) == sorted(run.run_id for run in runs)
    assert ingest.followed(EVENTS)[0] == Followed(3, 3)
    other = await log.ingest_log()
    assert await other.positions(EVENTS, "topic-1", [0, 1]) == {0: 7}
    assert other.followed(EVENTS)[0] == Followed(3, 3)


async def test_in_a_topic_made_again_offsets_begin_anew_and_numbers_go_on(log: Log) -> None:
    await log.queue()
    ingest = await begun(log)
    await ingest.commit(harvest_of(new_run(1), offset=9, seq=8))
    again = await log.ingest_log()
    assert await again.positions(EVENTS, "topic-2", [0, 1]) == {}
    assert again.followed(EVENTS)[0] == Followed(8, 8)
    await again.commit(harvest_of(new_run(2), offset=0, seq=9))
    assert await again.positions(EVENTS, "topic-2", [0]) == {0: 1}


async def test_an_event_makes_its_runs_once_however_often_it_comes(log: Log) -> None:
    await log.queue()
    ingest, run = await begun(log), new_run(1)
    for offset in range(3):
        await ingest.commit(harvest_of(run, offset=offset))
    assert await log.states() == {run.run_id: "granted"}


async def test_direct_records_take_their_key_and_a_conflict_is_a_dead_letter(log: Log) -> None:
    await log.queue()
    ingest, first = await begun(log), new_run(1)
    await ingest.commit(harvest_of(first, direct=True))
    same = msgspec.structs.replace(new_run(2), idempotency_key=first.idempotency_key)
    await ingest.commit(harvest_of(same, offset=1, direct=True))
    another = msgspec.structs.replace(new_run(3), idempotency_key=first.idempotency_key)
    await ingest.commit(harvest_of(another, offset=2, direct=True, body="[]"))
    assert list(await log.states()) == [first.run_id]
    rows = await rows_of(await log.relay_store())
    assert [(row.topic, row.value) for row in rows] == [("t.dead-letters", b"raw")]


async def test_what_direct_records_met_is_told_by_their_place(log: Log) -> None:
    await log.queue()
    ingest, first = await begun(log), new_run(1)
    assert (await ingest.commit(harvest_of(first, direct=True))).known == {}
    same, new = (msgspec.structs.replace(new_run(n), idempotency_key=key) for n, key in ((2, "key-1"), (3, "key-3")))
    harvest = harvest_of(new_run(4), offset=1)  # through a door
    direct = harvest_of(first, same, new, offset=2, direct=True)
    harvest.arrivals += direct.arrivals
    harvest.runs += direct.runs
    committed = await ingest.commit(harvest)
    assert committed.known == {1: Known(False, hash_of("{}")), 2: Known(False, hash_of("{}"))}
    another = harvest_of(first, offset=5, direct=True, body="[]")
    assert (await ingest.commit(another)).known == {0: Known(True, hash_of("{}"))}
    assert len(await log.states()) == 3


async def test_a_record_with_another_body_is_not_the_event_that_a_door_accepted(log: Log) -> None:
    """It names that event and its key, and is read before it."""
    await log.queue()
    door, ingest, run = await log.door(), await begun(log), new_run(1)
    await door.accept(published(run))
    other = msgspec.structs.replace(run, input="[]")
    await ingest.commit(harvest_of(other, direct=True, body="[]"))
    assert await log.states() == {}
    await ingest.commit(harvest_of(run, offset=1))
    assert await log.states() == {run.run_id: "granted"}


async def test_a_bad_record_is_buried_once(log: Log) -> None:
    ingest = await begun(log)
    for offset in range(2):
        harvest = harvest_of(offset=offset)
        harvest.reached[0] = Reached(offset + 1, Followed())
        harvest.dead.append(
            DeadRecord("dlq_1", None, "undecodable", "E_ENVELOPE_INVALID", "no", b"\xff", EVENTS, 0, offset)
        )
        await ingest.commit(harvest)
    assert [row.value for row in await rows_of(await log.relay_store())] == [b"\xff"]


async def test_what_an_event_came_to_is_told_once_and_not_where_it_comes_again(log: Log) -> None:
    await log.queue()
    ingest, run = await begun(log), new_run(1)
    old = {"reason": "event_too_old", "error_code": "E_EVENT_TOO_OLD", "summary": "no", "raw": b"raw", "topic": EVENTS}

    async def told(letter: str, event: str, offset: int, *runs: NewRun) -> list[str]:
        harvest = harvest_of(*(runs or (new_run(9),)), offset=offset)
        harvest.runs = list(runs)
        harvest.arrivals[0] = msgspec.structs.replace(harvest.arrivals[0], event_id=event)
        harvest.dead.append(DeadRecord(letter, run.project_id, partition=0, offset=offset, event_id=event, **old))
        return sorted((await ingest.commit(harvest)).buried)

    assert await told("dlq_1", "evt_old", 0) == ["dlq_1"]
    assert await told("dlq_2", "evt_old", 1) == []  # published again
    await ingest.commit(harvest_of(run, offset=2))
    assert await told("dlq_3", run.event_id, 3) == []  # it had its run, and has grown old since
    assert len(await rows_of(await log.relay_store())) == 1
    assert await log.states() == {run.run_id: "granted"}


async def test_runs_of_a_lane_take_dense_places_over_polls(log: Log) -> None:
    await log.queue(ordered=True)
    ingest = await begun(log)
    runs = [new_run(n, "a", ordered=True) for n in range(4)]
    await ingest.commit(harvest_of(*runs[:2]))
    await ingest.commit(harvest_of(*runs[2:], offset=2))
    states = await log.states()
    assert [states[run.run_id] for run in runs] == ["granted", "pending", "pending", "pending"]


# the relay's store


async def keep(store: RelayStore, epoch: int, cursor: Cursor, numbers: dict[tuple[str, int], int]) -> bool:
    return await store.advance(epoch, Progress(cursor, numbers, {EVENTS: Topic("topic-1", 2)}))


async def fill(log: Log, numbers: Sequence[int]) -> None:
    door = await log.door()
    for number in numbers:
        await door.accept(published(new_run(number)))


async def test_a_shard_has_one_owner_until_its_lease_is_over(log: Log) -> None:
    one, two = await log.relay_store(), await log.relay_store()
    hold = await one.take("one")
    assert hold is not None
    assert hold.cursor == (0, 0)
    assert await two.take("two") is None
    assert await one.renew(hold.epoch) is not None
    await one.release(hold.epoch)
    taken = await two.take("two")
    assert taken is not None
    assert taken.epoch > hold.epoch
    assert await one.renew(hold.epoch) is None


async def test_an_owner_of_an_epoch_that_is_over_keeps_nothing(log: Log) -> None:
    await fill(log, [1])
    one, two = await log.relay_store(lease=0.0), await log.relay_store()
    hold = await one.take("one")
    assert hold is not None
    (row,) = await rows_of(one)

    async def is_taken() -> bool:
        return await two.take("two") is not None

    await until(is_taken, "the lease is over", 30)
    assert not await keep(one, hold.epoch, Cursor(row.xid, row.id), {(EVENTS, 0): 1})
    assert await two.numbers() == {}


async def test_cursor_and_numbers_are_kept_together(log: Log) -> None:
    await fill(log, [1, 2, 3])
    store = await log.relay_store()
    hold = await store.take("one")
    assert hold is not None
    rows = await rows_of(store)
    cursor = Cursor(rows[1].xid, rows[1].id)
    assert await keep(store, hold.epoch, cursor, {(EVENTS, 0): 2})
    assert [row.id for row in await rows_of(store, cursor)] == [rows[2].id]
    assert await store.numbers() == {(EVENTS, 0): 2}
    assert await store.topics() == {EVENTS: Topic("topic-1", 2)}
    again = await store.take("one")
    assert again is not None
    assert again.cursor == cursor


async def test_a_gap_leads_back_to_the_checkpoint_before_it_with_the_numbers_of_then(log: Log) -> None:
    await fill(log, [1, 2, 3])
    store, ingest = await log.relay_store(), await begun(log)
    hold = await store.take("one")
    assert hold is not None
    rows = await rows_of(store)
    first, last = Cursor(rows[0].xid, rows[0].id), Cursor(rows[2].xid, rows[2].id)
    await keep(store, hold.epoch, first, {(EVENTS, 0): 1})
    await store.renew(hold.epoch)  # a checkpoint is kept
    await keep(store, hold.epoch, last, {(EVENTS, 0): 3})
    assert ingest.seal_key() == await store.seal_key()
    gap = harvest_of(seq=1)
    gap.reached[0], gap.missing[0] = Reached(3, Followed(1, 3)), 2
    await ingest.commit(gap)
    asked = await store.renew(hold.epoch)
    assert asked is not None
    assert asked.asked == {EVENTS}
    assert not await store.is_read_up(EVENTS)
    assert await store.unread() == {(EVENTS, 0): Unread(3, 1, 3)}
    assert await store.go_back(hold.epoch, [EVENTS])
    again = await store.take("one")
    assert again is not None
    assert (again.cursor, again.asked) == (first, frozenset())
    assert await store.numbers() == {(EVENTS, 0): 1}


async def test_a_lost_topic_that_ingest_does_not_read_goes_out_again_from_the_beginning(log: Log) -> None:
    await fill(log, [1, 2])
    store = await log.relay_store()
    hold = await store.take("one")
    assert hold is not None
    rows = await rows_of(store)
    await keep(store, hold.epoch, Cursor(rows[1].xid, rows[1].id), {(EVENTS, 0): 2})
    assert await store.go_back(hold.epoch, [EVENTS])
    again = await store.take("one")
    assert again is not None
    assert len(await rows_of(store, again.cursor)) == 2
    assert await store.numbers() == {(EVENTS, 0): 2}
