"""Deadlines in the log: counted from acceptance, carried by claims, and noticed wherever the run waits."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from processors.ports.journal import Batch
from processors.ports.runs import NewRun
from tests.integration.log.lab import Lab, end_of, manual_acceptance, rest_of

FAR = 3600.0


def due(run: NewRun, seconds: float = FAR) -> NewRun:
    return replace(run, deadline=seconds)


async def pass_deadlines(lab: Lab) -> None:
    """As if the time had come: for the run, and for what it waits for until then."""
    await lab.rows(
        "update automation.live_runs set deadline_at = clock_timestamp() - interval '1 s',"
        " visible_at = case when visible_at = deadline_at then clock_timestamp() - interval '1 s' else visible_at end"
        " where deadline_at is not null"
    )


async def test_a_deadline_counts_from_acceptance(lab: Lab) -> None:
    await lab.queue()
    await lab.make([due(lab.run(), 90), lab.run()], grant=False)
    by_hand = due(lab.run(), 0.25)
    await (await lab.door()).accept(manual_acceptance(by_hand))
    rows = await lab.rows(
        "select deadline_at - accepted_at as left, run_id from automation.live_runs order by deadline_at nulls last"
    )
    assert [round(row["left"].total_seconds(), 2) if row["left"] else None for row in rows] == [0.25, 90, None]


async def test_every_kind_of_claim_carries_the_deadline(lab: Lab) -> None:
    await lab.queue(limit=2)
    runs = [due(lab.run()) for _ in range(3)]
    grants = await lab.make(runs)
    journal = await lab.journal()
    (hinted,) = await journal.commit(Batch(hinted=[grants[0].run_id], room=1))
    (found,) = await lab.claim(journal)
    (handed_on,) = await journal.commit(Batch(ends=[end_of(hinted)], room=1))
    rows = await lab.rows("select run_id, deadline_at from automation.runs")
    expected = {row["run_id"]: row["deadline_at"] for row in rows}
    assert len(expected) == 3
    assert {claim.run_id: claim.deadline_at for claim in (hinted, found, handed_on)} == expected


async def test_history_keeps_the_deadline(lab: Lab) -> None:
    await lab.queue()
    await lab.make([due(lab.run(), 90)])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    await journal.commit(Batch(ends=[end_of(claim)]))
    assert await lab.column("select deadline_at from automation.runs") == [claim.deadline_at]
    assert claim.deadline_at is not None


@pytest.mark.parametrize(("sleeps", "deadline"), [(3600.0, 60.0), (60.0, 3600.0), (None, 60.0)])
async def test_a_parked_run_wakes_at_its_deadline_if_nothing_wakes_it_before(
    lab: Lab, sleeps: float | None, deadline: float
) -> None:
    await lab.queue()
    await lab.make([due(lab.run(), deadline)])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    until = None if sleeps is None else claim.accepted_at + timedelta(seconds=sleeps)
    await journal.commit(Batch(rests=[rest_of(claim, until, "blocked" if sleeps is None else "sleeping")]))
    (row,) = await lab.rows("select visible_at - accepted_at as wakes from automation.live_runs")
    assert row["wakes"].total_seconds() == 60
    outlook = await lab.schedule().look()
    assert outlook.next_due is not None
    assert 50 < outlook.next_due <= 60


@pytest.mark.parametrize("state", ["sleeping", "retrying", "blocked"])
async def test_a_parked_run_is_granted_at_its_deadline_though_its_queue_is_full(lab: Lab, state: str) -> None:
    await lab.queue(limit=1)
    await lab.make([due(lab.run())])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    await journal.commit(Batch(rests=[rest_of(claim, None, state)]))
    await lab.make([lab.run()])
    assert len(await lab.claim(journal)) == 1  # has the only slot
    await pass_deadlines(lab)
    schedule = lab.schedule()
    assert (await schedule.look()).timers_due
    assert await schedule.wake_due() == 1
    assert [grant.run_id for grant in await schedule.feed()] == [claim.run_id]
    assert await lab.taken() == await lab.holding() == 2


async def test_a_run_behind_a_full_queue_is_granted_at_its_deadline_and_gives_back_what_it_never_had(lab: Lab) -> None:
    await lab.queue(limit=1)
    await lab.make([lab.run()])
    journal, schedule = await lab.journal(), lab.schedule()
    (first,) = await lab.claim(journal)
    late, patient = due(lab.run()), lab.run()
    await lab.make([late, patient])
    outlook = await schedule.look()
    assert not outlook.runs_hungry
    assert outlook.next_due is not None
    assert FAR - 60 < outlook.next_due <= FAR
    await pass_deadlines(lab)
    assert (await schedule.look()).runs_hungry
    assert [grant.run_id for grant in await schedule.feed()] == [late.run_id]
    assert not (await schedule.look()).runs_hungry
    (overdue,) = await lab.claim(journal)
    assert overdue.run_id == late.run_id
    assert await journal.commit(Batch(ends=[end_of(overdue, "cancelled")], room=10)) == []  # the one slot is taken
    assert await lab.taken() == await lab.holding() == 1
    await journal.commit(Batch(ends=[end_of(first)]))
    await schedule.feed()
    (next_one,) = await lab.claim(journal)
    assert next_one.run_id == patient.run_id
    assert await lab.taken() == await lab.holding() == 1


async def test_a_run_that_waits_for_its_turn_in_a_lane_ends_in_its_turn(lab: Lab) -> None:
    """An end before the head of the lane would free the lane too early."""
    await lab.queue(ordered=True)
    first, second = lab.run(ordered=True), due(lab.run(ordered=True))
    await lab.make([first, second])
    journal, schedule = await lab.journal(), lab.schedule()
    (claim,) = await lab.claim(journal)
    await pass_deadlines(lab)
    assert not (await schedule.look()).runs_hungry
    assert await schedule.feed() == []
    (turn,) = await journal.commit(Batch(ends=[end_of(claim)], room=10))
    assert turn.run_id == second.run_id
    assert turn.deadline_at is not None


async def test_an_overdue_run_of_another_project_is_not_mixed_up(lab: Lab) -> None:
    await lab.queue(limit=1)
    await lab.queue(limit=1, project="other")
    await lab.make([lab.run(), lab.run(project="other")])
    late = due(lab.run())
    await lab.make([late, lab.run(project="other")])
    await pass_deadlines(lab)
    assert [grant.run_id for grant in await lab.schedule().feed()] == [late.run_id]
    counters = await lab.rows("select project_id, running from automation.queues order by 1")
    assert [(row["project_id"], row["running"]) for row in counters] == [("other", 1), ("shop", 2)]
