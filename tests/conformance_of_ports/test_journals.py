"""Journals and schedules: one claim a grant, fences, leases, lanes, slots, mail, and commits whose answer was lost."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from processors.ports.journal import (
    Announcement,
    Batch,
    Claim,
    Entry,
    Journal,
    LateAttempt,
    Release,
    RunEnd,
    RunRest,
    SessionOver,
)
from processors.ports.relay import Cursor
from processors.ports.runs import NewRun
from schemas.errors import Broken
from schemas.records import ErrorInfo, Kind, Record, Status
from tests.conformance_of_ports.logs import Log, new_run
from tests.integration.log.lab import end_of, entry_of, manual_acceptance, rest_of

HOUR = timedelta(hours=1)


async def make(log: Log, *runs: NewRun) -> None:
    door = await log.door()
    for run in runs:  # one after the other: their places are in this order
        await door.accept(manual_acceptance(run))


async def claim_all(journal: Journal, room: int = 100) -> list[Claim]:
    return list(await journal.commit(Batch(look_for_granted=True, room=room)))


def ends(*claims: Claim) -> Batch:
    return Batch(ends=[end_of(claim) for claim in claims], room=100)


def runs_of(claims: Sequence[Claim]) -> list[str]:
    return sorted(claim.run_id for claim in claims)


async def test_two_claims_of_one_grant_have_one_winner(log: Log) -> None:
    await log.queue()
    runs = [new_run(n) for n in range(6)]
    await make(log, *runs)
    one, two = await log.journal("executor-1"), await log.journal("executor-2")
    wish = Batch(hinted=[run.run_id for run in runs], look_for_granted=True, room=10)
    both = await asyncio.gather(one.commit(wish), two.commit(wish))
    assert runs_of([*both[0], *both[1]]) == sorted(run.run_id for run in runs)


async def test_a_claim_tells_what_the_run_was_made_of(log: Log) -> None:
    await log.queue(ordered=True)
    run = new_run(1, "lane-7", ordered=True, deadline=60.0)
    await make(log, run)
    journal = await log.journal()
    (claim,) = await claim_all(journal)
    for name in ("run_id", "workflow_id", "version", "event_id", "idempotency_key", "partition_key", "input", "lane"):
        assert getattr(claim, name) == getattr(run, name), name
    told = (claim.fence, claim.generation, claim.lane_seq, claim.crashes, claim.owner_lost, claim.has_mail)
    assert told == (1, 1, 1, 0, False, False)
    assert claim.max_attempts == 5
    assert claim.occurred_at == datetime(2026, 7, 19, 14, 0, tzinfo=UTC)
    assert claim.deadline_at == claim.accepted_at + timedelta(seconds=60)
    assert abs((journal.now() - claim.started_at).total_seconds()) < 30


async def test_a_run_is_stale_by_the_time_of_its_first_claim(log: Log) -> None:
    await log.queue()
    moments = {1: None, 2: "2026-07-19T14:00:00.500Z", 3: "9998-01-01T00:00:00Z"}
    await make(log, *(new_run(number, stale_at=at) for number, at in moments.items()))
    claims = await claim_all(await log.journal())
    told = {claim.input: (claim.stale_at, claim.is_stale) for claim in claims}
    assert told == {
        '{"n":1}': (None, False),
        '{"n":2}': (datetime(2026, 7, 19, 14, 0, 0, 500_000, tzinfo=UTC), True),
        '{"n":3}': (datetime(9998, 1, 1, tzinfo=UTC), False),
    }


async def test_records_come_back_as_they_were_written(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal = await log.journal()
    (claim,) = await claim_all(journal)
    now = datetime.now(UTC)
    error = ErrorInfo("E_UPSTREAM_503", "Upstream", "503 after 2 s", "flow.py:7", True, 2.5)
    records = [
        Record(1, Kind.SLEEP, "nap", 0, Status.OPENED, 0, final=False, due=now + HOUR, recorded_at=now),
        Record(2, Kind.STEP, "a", 1, Status.FAILED, 0, final=False, key="k", error=error, cost=0.25, recorded_at=now),
        Record(3, Kind.STEP, "a", 2, Status.SUCCEEDED, 0, final=True, key="k", value='{"n":1e2}', recorded_at=now),
    ]
    entries = [Entry(claim.run_id, 1, claim.project_id, record) for record in records]
    await journal.commit(Batch(entries=entries))
    assert await journal.histories([claim.run_id]) == {claim.run_id: records}
    with pytest.raises(Broken):
        await journal.commit(Batch(entries=entries[:1]))
    assert await journal.histories([claim.run_id]) == {claim.run_id: records}


async def test_a_session_whose_lease_is_over_commits_nothing_more(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal, other = await log.journal(), await log.journal("executor-2")
    (claim,) = await claim_all(journal)
    await log.end_lease()
    assert [(grant.run_id, grant.fence) for grant in await log.schedule().reap()] == [(claim.run_id, 2)]
    with pytest.raises(SessionOver):
        await journal.commit(Batch(entries=[entry_of(claim, 1)]))
    (again,) = await claim_all(other)
    assert (again.fence, again.owner_lost, again.crashes) == (2, True, 1)
    assert (await other.histories([claim.run_id]))[claim.run_id] == []


async def test_a_batch_in_time_renews_a_lease_that_nobody_closed(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal = await log.journal()
    (claim,) = await claim_all(journal)
    await log.end_lease()
    await journal.commit(Batch(entries=[entry_of(claim, 1)]))
    assert await log.schedule().reap() == []
    assert (await journal.histories([claim.run_id]))[claim.run_id] != []


async def test_a_commit_without_an_answer_is_found_out(log: Log) -> None:
    await log.queue()
    await make(log, *(new_run(n) for n in range(8)))
    journal = await log.journal()
    (claim, *_) = await claim_all(journal, room=1)
    for seq in range(1, 8):
        sending = asyncio.create_task(
            journal.commit(Batch(entries=[entry_of(claim, seq)], look_for_granted=True, room=1))
        )
        await asyncio.sleep(0.001 * (seq % 4))  # the break comes before, in or after the commit: all must do
        await log.break_connection(journal)
        claims = await sending
        assert len((await journal.histories([claim.run_id]))[claim.run_id]) == seq
        assert all(one.run_id for one in claims)


async def test_another_session_of_the_process_gives_the_one_before_up(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal = await log.journal()
    (claim,) = await claim_all(journal)
    await journal.open()
    assert await claim_all(journal) == []
    assert [grant.run_id for grant in await log.schedule().reap()] == [claim.run_id]
    (again,) = await claim_all(journal)
    assert (again.owner_lost, again.crashes) == (True, 0)  # a process that says so itself did not die of its runs


async def test_released_runs_are_granted_again_and_the_session_is_closed(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1), new_run(2))
    journal, other = await log.journal(), await log.journal("executor-2")
    one, two = sorted(await claim_all(journal), key=lambda claim: claim.run_id)
    await journal.release([Release(one.run_id, in_flight=True), Release(two.run_id, in_flight=False)])
    with pytest.raises(SessionOver):
        await journal.commit(Batch())
    again = sorted(await claim_all(other), key=lambda claim: claim.run_id)
    assert [(claim.fence, claim.owner_lost, claim.crashes) for claim in again] == [(2, True, 0), (2, False, 0)]


async def test_a_queue_is_never_above_its_limit_and_ends_hand_their_slots_on(log: Log) -> None:
    await log.queue(limit=2)
    await make(log, *(new_run(n) for n in range(5)))
    journal = await log.journal()
    held, done = await claim_all(journal), 0
    while held:
        assert len(held) <= 2
        done += 1
        held = [*held[1:], *await journal.commit(ends(held[0]))]
    assert done == 5
    assert set((await log.states()).values()) == {"succeeded"}


async def test_a_parked_run_gives_its_slot_back_and_wakes_in_its_time(log: Log) -> None:
    await log.queue(limit=1)
    await make(log, new_run(1), new_run(2))
    journal, schedule = await log.journal(), log.schedule()
    (first,) = await claim_all(journal)
    soon = journal.now() - timedelta(seconds=1)
    (second,) = await journal.commit(Batch(rests=[rest_of(first, soon)], room=10))
    assert second.run_id != first.run_id
    look = await schedule.look()
    assert (look.timers_due, look.runs_hungry) == (True, False)
    assert await schedule.wake_due() == 1
    assert await schedule.feed() == []
    (again,) = await journal.commit(ends(second))
    assert (again.run_id, again.fence) == (first.run_id, 2)


async def test_runs_of_a_lane_go_one_after_the_other(log: Log) -> None:
    await log.queue(ordered=True)
    runs = [new_run(n, "a", ordered=True) for n in range(3)]
    await make(log, *runs, new_run(9, "b", ordered=True))
    journal, schedule = await log.journal(), log.schedule()
    held = {claim.lane: claim for claim in await claim_all(journal)}
    assert held["a"].run_id == runs[0].run_id
    for run in runs[1:]:
        assert await claim_all(journal) == []
        handed = list(await journal.commit(ends(held["a"])))
        if not handed:
            await schedule.feed()
            handed = await claim_all(journal)
        (held["a"],) = handed
        assert held["a"].run_id == run.run_id


async def test_a_blocked_run_keeps_its_lane(log: Log) -> None:
    await log.queue(ordered=True)
    await make(log, new_run(1, "a", ordered=True), new_run(2, "a", ordered=True))
    journal, schedule = await log.journal(), log.schedule()
    (claim,) = await claim_all(journal)
    assert await journal.commit(Batch(rests=[rest_of(claim, None, "blocked")], room=10)) == []
    assert await schedule.feed() == []
    assert sorted((await log.states()).values()) == ["blocked", "pending"]


async def test_mail_reaches_the_owner_until_a_batch_has_acted_on_it(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal = await log.journal()
    (claim,) = await claim_all(journal)
    await log.leave_mail(claim.run_id)
    await log.leave_mail(claim.run_id)
    mail = await journal.unread_mail()
    assert [(one.run_id, one.kind, one.actor) for one in mail] == [(claim.run_id, "cancel", "maria")] * 2
    await journal.commit(Batch(mail=[mail[0].mail_id]))
    assert await journal.unread_mail() == [mail[1]]
    await journal.commit(Batch(rests=[rest_of(claim, journal.now() + HOUR)], room=10))
    assert (await log.schedule().look()).timers_due  # the mail that is left wakes it at once


async def test_announcements_are_part_of_their_batch(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal, store = await log.journal(), await log.relay_store()
    (claim,) = await claim_all(journal)
    told = [Announcement("t.run-events", claim.run_id, b"%d" % n) for n in range(3)]
    await journal.commit(Batch(announcements=told, ends=[end_of(claim)]))
    await log.end_lease()
    await log.schedule().reap()
    with pytest.raises(SessionOver):
        await journal.commit(Batch(announcements=told))
    upper = await store.upper()
    rows = await store.rows(Cursor(0, 0), await store.horizon(upper), 100)
    assert [(row.topic, row.partition_key, row.value) for row in rows] == [
        ("t.run-events", claim.run_id, b"%d" % n) for n in range(3)
    ]


async def test_suspects_are_taken_one_at_a_time_and_not_by_a_hint(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1), new_run(2))
    for number in (1, 2):
        journal = await log.journal(f"executor-{number}")
        assert len(await claim_all(journal)) == 2
        await log.end_lease(f"executor-{number}")
        await log.schedule().reap()
    last = await log.journal("executor-3")
    hinted = list(await log.states())
    assert await last.commit(Batch(hinted=hinted, room=2)) == []
    (suspect,) = await claim_all(last)
    assert suspect.crashes == 2
    assert await claim_all(last) == []
    await last.commit(Batch(entries=[entry_of(suspect, 1)], crashes={suspect.run_id: 0}))
    assert len(await claim_all(last)) == 1


async def test_runs_whose_deadline_has_passed_need_no_slot(log: Log) -> None:
    await log.queue(limit=1)
    await make(log, new_run(1), new_run(2, deadline=-1.0), new_run(3))
    schedule = log.schedule()
    assert (await schedule.look()).runs_hungry
    (grant,) = await schedule.feed()
    claims = await claim_all(await log.journal())
    assert len(claims) == 2
    assert {claim.run_id for claim in claims if claim.deadline_at} == {grant.run_id}


async def test_late_results_are_kept_beside_the_log(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal = await log.journal()
    (claim,) = await claim_all(journal)
    await journal.keep_late([LateAttempt(claim.run_id, 1, "pay", 1, "succeeded", "1", None, "k", 0.1)])
    assert (await journal.histories([claim.run_id]))[claim.run_id] == []
    await journal.commit(Batch(entries=[entry_of(claim, 1)]))


async def test_ends_of_runs_that_are_not_ours_change_nothing(log: Log) -> None:
    await log.queue()
    await make(log, new_run(1))
    journal, other = await log.journal(), await log.journal("executor-2")
    (claim,) = await claim_all(journal)
    rests: list[RunRest] = [rest_of(claim, journal.now())]
    stolen: list[RunEnd] = [end_of(claim, "failed")]
    await other.commit(Batch(ends=stolen))
    await other.commit(Batch(rests=rests))
    assert await log.states() == {claim.run_id: "running"}
    await journal.commit(ends(claim))
    assert await log.states() == {claim.run_id: "succeeded"}


async def test_counters_that_drifted_are_repaired(log: Log) -> None:
    await log.queue(limit=1)
    await make(log, new_run(1), new_run(2))
    journal, other = await log.journal(), await log.journal("executor-2")
    (claim,) = await claim_all(journal)
    await other.commit(Batch(rests=[rest_of(claim, None)]))  # gives back a slot that it does not hold
    await log.schedule().recount()
    assert await log.schedule().feed() == []
    assert len(await journal.commit(ends(claim))) == 1


async def test_sessions_of_gone_processes_stay_until_their_lease_says_so(log: Log) -> None:
    journal = await log.journal()
    look = await log.schedule().look()
    assert (look.sessions_late, list(look.silent)) == (False, [])
    await log.end_lease()
    assert (await log.schedule().look()).sessions_late
    await journal.commit(Batch())
    assert not (await log.schedule().look()).sessions_late
