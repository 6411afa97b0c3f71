"""Many at once: exactly one claim wins, deadlocks are repeated, what one finds taken aborts nobody's transaction."""

import asyncio
import time
from collections import Counter
from datetime import timedelta

from structlog.testing import capture_logs

from processors.adapters.postgres.wakeups import wait_for_event
from processors.ports.door import Outcome
from processors.ports.journal import Batch
from tests.integration.faults.arrivals import harvest_of, webhook
from tests.integration.faults.gateways import open_gateway
from tests.integration.faults.others import transaction
from tests.integration.log.lab import EVENTS, Lab, end_of, entry_of, manual_acceptance
from tests.support.waiting import until


async def test_two_executors_that_get_the_same_command_at_once_claim_each_run_once(lab: Lab) -> None:
    await lab.queue(limit=1000)
    journals = [await lab.journal(owner=f"executor-{n}") for n in range(2)]
    for _ in range(20):
        runs = [lab.run() for _ in range(10)]
        granted = [grant.run_id for grant in await lab.make(runs)]
        batches = (Batch(hinted=granted, room=10) for _ in journals)
        first, second = await asyncio.gather(*(one.commit(told) for one, told in zip(journals, batches, strict=True)))
        claimed = Counter(claim.run_id for claim in (*first, *second))
        assert claimed == Counter(granted)
        assert {claim.fence for claim in (*first, *second)} == {1}


async def test_a_command_that_comes_again_after_the_run_ended_claims_nothing(lab: Lab) -> None:
    await lab.queue()
    journals = [await lab.journal(owner=f"executor-{n}") for n in range(2)]
    (grant,) = await lab.make([lab.run()])
    hint = Batch(hinted=[grant.run_id], room=10)
    (claim,) = await journals[0].commit(hint)
    assert await journals[1].commit(hint) == []
    await journals[0].commit(Batch(entries=[entry_of(claim, 1)], ends=[end_of(claim)]))
    assert await journals[1].commit(hint) == []
    assert await lab.states() == {"succeeded": 1}


async def test_a_deadlock_undoes_nobody_s_request(lab: Lab) -> None:
    """The door holds the queue and waits for the key, somebody else the other way round: the batch comes again."""
    await lab.queue()
    door = await lab.door()
    first = await door.accept(manual_acceptance(lab.run(key="same")))
    with capture_logs() as logs:
        async with transaction(lab, "select from automation.idempotency_keys for update") as other:
            again, fresh = lab.run(key="same"), lab.run()
            accepting = asyncio.gather(*(door.accept(manual_acceptance(run)) for run in (again, fresh)))
            await lab.waits_for_lock("a44-door")
            await other.execute("select from automation.queues for update")  # the door looks first, and gives way
            await other.rollback()
            answers = await accepting
    assert "batch_repeated" in [line["event"] for line in logs]
    assert [answer.outcome for answer in answers] == [Outcome.DUPLICATE, Outcome.CREATED]
    assert answers[0].run_id == first.run_id
    assert sorted(await lab.column("select run_id from automation.live_runs")) == sorted(
        [str(first.run_id), fresh.run_id]
    )


async def test_e16_a_key_that_somebody_else_has_just_taken_aborts_nothing_of_the_batch(lab: Lab) -> None:
    """Another door's transaction holds the new key and commits while the batch waits for it."""
    door, other = await lab.door(), await lab.door()
    (winner,) = await asyncio.gather(other.accept(webhook("order-7")))
    await lab.rows("update automation.idempotency_keys set expires_at = clock_timestamp() + interval '1 hour'")
    async with transaction(lab, "select from automation.idempotency_keys for update") as holding:
        asked = asyncio.gather(*(door.accept(webhook(f"order-{n}")) for n in range(50)))
        await lab.waits_for_lock("a44-door")
        await holding.commit()
        answers = await asked
    assert Counter(answer.outcome for answer in answers) == {Outcome.CREATED: 49, Outcome.DUPLICATE: 1}
    assert answers[7].run_id == winner.run_id
    assert await lab.value("select count(*) from automation.outbox") == 50


async def test_e16_a_poll_with_events_that_another_has_seen_makes_the_rest(lab: Lab) -> None:
    await lab.queue()
    runs = [lab.run() for _ in range(30)]
    first, second = await lab.ingest_log(), await lab.ingest_log()
    for log in (first, second):
        await log.positions(EVENTS, "topic-1", [0])
    await asyncio.gather(first.commit(harvest_of(runs[:20])), second.commit(harvest_of(runs[10:], offset=10)))
    assert sorted(await lab.column("select run_id from automation.live_runs")) == sorted(run.run_id for run in runs)


async def test_b05_key_inbox_and_run_are_one_transaction(lab: Lab) -> None:
    """The connection dies after the key was taken and before the run is made: nothing of it is there."""
    await lab.queue(ordered=True)
    door = await lab.door()
    await door.accept(manual_acceptance(lab.run("a", ordered=True)))
    async with transaction(lab, "select from automation.lanes for update"):
        run = lab.run("a", ordered=True, key="by-hand")
        accepting = asyncio.ensure_future(door.accept(manual_acceptance(run)))
        await lab.waits_for_lock("a44-door")  # in create_runs: the key's row is written, and seen by nobody
        await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-door"))
        await lab.waits_for_lock("a44-door")  # the same batch again, on a new connection
        assert await lab.value("select count(*) from automation.idempotency_keys") == 1
        assert await lab.value("select count(*) from automation.inbox") == 1
        assert await lab.value("select count(*) from automation.live_runs") == 1
    answer = await accepting
    assert (answer.outcome, answer.run_id) == (Outcome.CREATED, run.run_id)
    assert await lab.value("select count(*) from automation.live_runs") == 2


async def test_b05_a_key_lives_by_the_database_s_clock(lab: Lab) -> None:
    """Whatever this process takes the time to be."""
    door = await lab.door()
    assert door._clock._seen is not None
    door._clock._seen += timedelta(days=3)
    await door.accept(webhook("order-1"))
    off, kept = (
        await lab.rows(
            "select extract(epoch from clock_timestamp() - accepted_at)::float8 as off,"
            " extract(epoch from expires_at - accepted_at)::float8 as kept from automation.idempotency_keys"
        )
    )[0].values()
    assert 0 <= off < 60
    assert abs(kept - 86_400) < 1
    assert (await door.accept(webhook("order-1"))).outcome is Outcome.DUPLICATE


async def test_b10_a_hundred_parallel_callers_with_one_new_key_get_one_run(lab: Lab) -> None:
    async with open_gateway(lab.dsn, patience=20) as gateway, open_gateway(lab.dsn, patience=20) as other:
        answers = await asyncio.gather(*((gateway, other)[n % 2].run("order-1", input={"n": 1}) for n in range(100)))
        assert Counter(answer.status for answer in answers) == {202: 1, 200: 99}
        assert len({answer.body["run_id"] for answer in answers}) == 1
        assert len(await gateway.rows("select run_id from automation.runs")) == 1


async def test_e08_renewals_of_fifty_sessions_wait_for_no_lock(lab: Lab) -> None:
    """They ride on the batches: one row each, that nobody else writes."""
    journals = [await lab.journal(owner=f"executor-{n}") for n in range(50)]
    schedule = lab.schedule()
    stop = asyncio.Event()
    renewals = 0

    async def renew(place: int) -> None:
        nonlocal renewals
        while not stop.is_set():
            await journals[place].commit(Batch())
            renewals += 1

    async def look() -> None:
        while not stop.is_set():
            await schedule.look()
            await schedule.reap()
            await wait_for_event(stop, 0.1)

    working = [asyncio.create_task(renew(place)) for place in range(50)] + [asyncio.create_task(look())]
    await until(lambda: _are_watched(lab, 50), "all liveness locks to be taken", 60)
    waits: Counter[str] = Counter()
    looks, end = 0, time.monotonic() + 3
    while time.monotonic() < end or looks < 50:
        waits.update(
            await lab.column(
                "select application_name || ' ' || wait_event || ' ' || query from pg_stat_activity"
                " where datname = current_database() and wait_event_type = 'Lock'"
            )
        )
        looks += 1
    stop.set()
    await asyncio.gather(*working)
    assert not waits
    assert renewals >= 50
    assert await lab.value("select sum(batch) from automation.sessions") == renewals
    assert await lab.value("select bool_and(alive) from automation.sessions")


async def test_renewals_stay_in_their_page_and_write_no_index(lab: Lab) -> None:
    """What a row leaves behind is taken again by the next one; with an index on what changes, all of it would grow."""
    journal = await lab.journal()
    await journal.commit(Batch())
    size = "select pg_relation_size('automation.sessions') + pg_indexes_size('automation.sessions')"
    before = await lab.value(size)
    for _ in range(1000):
        await journal.commit(Batch())
    assert await lab.value(size) == before


async def _are_watched(lab: Lab, many: int) -> bool:
    return bool(await lab.value("select count(*) = %s from automation.sessions where watched", many))
