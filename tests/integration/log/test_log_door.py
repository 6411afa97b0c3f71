"""The door on Postgres: what is accepted is durable, once, and everybody gets the same answer."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.wakeups import Notifier
from processors.ports.door import Acceptance, Outcome
from schemas.errors import Unavailable
from schemas.ids import new_event_id, run_id
from tests.integration.log.lab import EVENTS, PROJECT, Lab, hash_of, manual_acceptance


def webhook(
    key: str, body: str = '{"amount":100}', *, project: str = PROJECT, lane: str = "c-1", window: float = 86_400.0
) -> Acceptance:
    event = new_event_id(int(datetime.now(UTC).timestamp() * 1000))
    return Acceptance(
        project_id=project,
        idempotency_key=key,
        key_source="header",
        body_hash=hash_of(body),
        event_id=event,
        partition_key=lane,
        run_id=run_id(PROJECT, event, "trg_orders", 1),
        envelope=f"{event} {body}".encode(),
        window=window,
    )


async def test_a_hundred_callers_with_one_new_key_make_one_event(lab: Lab) -> None:
    """Case B10."""
    door, other = await lab.door(), await lab.door()
    items = [webhook("order-1") for _ in range(100)]
    answers = await asyncio.gather(*(one.accept(item) for one, item in zip([door, other] * 50, items, strict=True)))
    assert Counter(answer.outcome for answer in answers) == {Outcome.CREATED: 1, Outcome.DUPLICATE: 99}
    assert len({(answer.event_id, answer.run_id) for answer in answers}) == 1
    assert await lab.value("select count(*) from automation.outbox") == 1
    (created,) = [item for item, answer in zip(items, answers, strict=True) if answer.outcome is Outcome.CREATED]
    assert answers[0].event_id == created.event_id
    assert bytes(await lab.value("select value from automation.outbox")) == created.envelope


async def test_another_body_under_the_same_key_is_a_conflict(lab: Lab) -> None:
    """Case B01; and B02: it is one also while the first run has not ended."""
    door = await lab.door()
    first = await door.accept(webhook("order-1"))
    second = await door.accept(webhook("order-1", '{"amount":900}'))
    assert second.outcome is Outcome.CONFLICT
    assert (second.event_id, second.run_id) == (first.event_id, first.run_id)
    assert second.first_body_hash == hash_of('{"amount":100}')
    assert await lab.value("select count(*) from automation.outbox") == 1


async def test_conflict_and_repetition_in_one_batch(lab: Lab) -> None:
    door = await lab.door()
    bodies = ['{"amount":100}', '{"amount":900}', '{"amount":100}']
    answers = await asyncio.gather(*(door.accept(webhook("order-1", body)) for body in bodies))
    assert [one.outcome for one in answers] == [Outcome.CREATED, Outcome.CONFLICT, Outcome.DUPLICATE]


async def test_two_projects_may_choose_the_same_key(lab: Lab) -> None:
    """Case B09."""
    door = await lab.door()
    answers = await asyncio.gather(door.accept(webhook("order-1")), door.accept(webhook("order-1", project="bakery")))
    assert [one.outcome for one in answers] == [Outcome.CREATED, Outcome.CREATED]
    assert len({one.event_id for one in answers}) == 2


async def test_the_age_of_a_key_counts_from_its_first_acceptance(lab: Lab) -> None:
    door = await lab.door()
    await door.accept(webhook("order-1"))
    await lab.rows("update automation.idempotency_keys set accepted_at = accepted_at - interval '1 hour'")
    answer = await door.accept(webhook("order-1"))
    assert 3600 <= answer.key_age < 3700


async def test_a_key_whose_window_has_passed_is_used_again_in_place(lab: Lab) -> None:
    door = await lab.door()
    first = await door.accept(webhook("order-1"))
    await lab.rows("update automation.idempotency_keys set expires_at = clock_timestamp()")
    second = await door.accept(webhook("order-1", '{"amount":900}'))
    assert second.outcome is Outcome.CREATED
    assert second.event_id != first.event_id
    assert await lab.value("select count(*) from automation.idempotency_keys") == 1
    assert await lab.value("select count(*) from automation.outbox") == 2
    third = await door.accept(webhook("order-1", '{"amount":900}'))
    assert (third.outcome, third.event_id) == (Outcome.DUPLICATE, second.event_id)


async def test_the_outbox_holds_envelopes_in_the_order_of_acceptance(lab: Lab) -> None:
    door = await lab.door()
    items = [webhook(f"order-{n}", lane=f"c-{n % 3}") for n in range(300)]
    await asyncio.gather(*(door.accept(item) for item in items))
    rows = await lab.rows("select topic, partition_key, value from automation.outbox order by xid, id")
    assert [bytes(row["value"]) for row in rows] == [item.envelope for item in items]
    assert [row["partition_key"] for row in rows] == [item.partition_key for item in items]
    assert {row["topic"] for row in rows} == {EVENTS}


async def test_a_manual_run_is_made_and_granted_in_one_commit(lab: Lab) -> None:
    await lab.queue()
    door = await lab.door()
    run = lab.run()
    answer = await door.accept(manual_acceptance(run))
    assert (answer.outcome, answer.run_id) == (Outcome.CREATED, run.run_id)
    (row,) = await lab.rows("select * from automation.live_runs")
    assert (row["state"], row["fence"], row["input"]) == ("granted", 1, run.input)
    assert [one.run_id for one in lab.grants] == [run.run_id]
    assert await lab.value("select count(*) from automation.outbox") == 0
    assert await lab.value("select count(distinct xmin::text) from automation.idempotency_keys") == 1


async def test_a_repeated_manual_run_is_made_once(lab: Lab) -> None:
    await lab.queue()
    door, other = await lab.door(), await lab.door()
    runs = [lab.run(key="by-hand") for _ in range(40)]
    answers = await asyncio.gather(
        *(one.accept(manual_acceptance(run)) for one, run in zip([door, other] * 20, runs, strict=True))
    )
    assert Counter(one.outcome for one in answers) == {Outcome.CREATED: 1, Outcome.DUPLICATE: 39}
    assert await lab.column("select run_id from automation.live_runs") == [answers[0].run_id]


async def test_manual_runs_of_a_lane_take_numbers_in_the_order_of_acceptance(lab: Lab) -> None:
    await lab.queue(ordered=True)
    door = await lab.door()
    runs = [lab.run("a" if n % 2 else "b", ordered=True) for n in range(40)]
    await asyncio.gather(*(door.accept(manual_acceptance(run)) for run in runs))
    for lane in ("a", "b"):
        rows = await lab.rows(
            "select run_id, lane_seq from automation.live_runs where lane = %s order by lane_seq", lane
        )
        assert [row["run_id"] for row in rows] == [run.run_id for run in runs if run.lane == lane]
        assert [row["lane_seq"] for row in rows] == list(range(1, 21))
    assert await lab.states() == {"granted": 2, "pending": 38}


async def test_an_answer_that_was_lost_with_its_connection_is_found_again(lab: Lab) -> None:
    """The second try finds its own event in the key row."""
    await lab.queue()
    door = await lab.door()
    for n in range(20):
        await door.accept(webhook(f"alive-{n}"))  # the kill before may have come behind the answer
        run, backend = lab.run(), await lab.backend("a44-door")
        accepting = asyncio.ensure_future(door.accept(manual_acceptance(run)))
        await asyncio.sleep(n * 0.0003)  # another moment each time: before, during and after the commit
        await lab.rows("select pg_terminate_backend(%s)", backend)
        answer = await accepting
        assert (answer.outcome, answer.run_id) == (Outcome.CREATED, run.run_id)
    assert await lab.value("select count(*) from automation.live_runs") == 20


async def test_what_cannot_be_stored_fails_alone(lab: Lab) -> None:
    door = await lab.door()
    items = [webhook(f"order-{n}") for n in range(20)]
    bad = webhook("order\0nul")
    results = await asyncio.gather(*(door.accept(one) for one in [*items, bad]), return_exceptions=True)
    assert [getattr(one, "outcome", None) for one in results[:-1]] == [Outcome.CREATED] * 20
    assert getattr(results[-1], "code", None) == "E_INTERNAL"
    assert await lab.value("select count(*) from automation.outbox") == 20


async def test_without_postgres_nothing_is_accepted() -> None:
    dsn = "postgresql://a44@127.0.0.1:1/none?connect_timeout=1"
    door = PostgresDoor(dsn, EVENTS, Notifier(dsn), lambda _: None, patience=0.3)
    with pytest.raises(Unavailable, match="send it again with the same key"):
        await door.accept(webhook("order-1"))


async def test_the_clock_of_the_door_is_the_database_s(lab: Lab) -> None:
    door = await lab.door()
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        before = door.now()
        row = await (await conn.execute("select clock_timestamp()")).fetchone()
        after = door.now()
        assert row is not None
        assert before - timedelta(seconds=0.5) < row[0] < after + timedelta(seconds=0.5)
