"""Slots and lanes: never one too many, never two of a lane, in order, and nothing is left waiting."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.statements import statements
from processors.ports.journal import Batch, Claim
from tests.integration.log.lab import PROJECT, QUEUE, Lab, end_of, rest_of


def due() -> datetime:
    """A timer that the schedule finds due at once."""
    return datetime.now(UTC) - timedelta(seconds=1)


async def commit_ends(journal: PostgresJournal, claims: Sequence[Claim], room: int = 100) -> list[Claim]:
    return list(await journal.commit(Batch(ends=[end_of(claim) for claim in claims], room=room)))


async def test_no_more_runs_are_granted_than_the_queue_allows(lab: Lab) -> None:
    await lab.queue(limit=3)
    assert len(await lab.make([lab.run() for _ in range(10)])) == 3
    assert len(await lab.make([lab.run()])) == 0
    assert await lab.states() == {"granted": 3, "pending": 8}
    assert await lab.taken() == 3


async def test_the_end_of_a_run_hands_its_slot_on_in_the_same_commit(lab: Lab) -> None:
    await lab.queue(limit=2)
    runs = [lab.run() for _ in range(5)]
    await lab.make(runs)
    journal = await lab.journal()
    first = await lab.claim(journal)
    assert {claim.run_id for claim in first} == {run.run_id for run in runs[:2]}
    passed = await commit_ends(journal, first)
    assert {claim.run_id for claim in passed} == {run.run_id for run in runs[2:4]}
    assert {claim.fence for claim in passed} == {1}
    assert await lab.states() == {"succeeded": 2, "running": 2, "pending": 1}
    assert await lab.taken() == 2
    assert await lab.value("select count(*) from automation.queue_deltas") == 0


async def test_a_session_without_room_gives_the_slot_back(lab: Lab) -> None:
    await lab.queue(limit=1)
    await lab.make([lab.run(), lab.run()])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    assert await commit_ends(journal, [claim], room=0) == []
    assert await lab.taken() == 0
    assert await lab.value("select running from automation.queues") == 1  # until the next grant folds the delta
    (grant,) = await lab.schedule().feed()
    assert grant.fence == 1
    assert await lab.value("select running from automation.queues") == 1
    assert await lab.value("select count(*) from automation.queue_deltas") == 0


async def test_a_lowered_limit_is_kept_from_the_next_end_on(lab: Lab) -> None:
    await lab.queue(limit=4)
    await lab.make([lab.run() for _ in range(10)])
    journal, schedule = await lab.journal(), lab.schedule()
    claims = await lab.claim(journal)
    await lab.rows("update automation.queues set max_concurrency = 2")
    assert await commit_ends(journal, claims[:1]) == []
    assert await schedule.feed() == []
    assert await commit_ends(journal, claims[1:3]) == []
    assert len(await schedule.feed()) == 1
    assert await lab.taken() == await lab.holding() == 2


async def test_a_lane_runs_one_at_a_time_and_in_order(lab: Lab) -> None:
    await lab.queue(limit=10, ordered=True)
    runs = [lab.run(lane, ordered=True) for lane in "abcabcabc"]
    await lab.make(runs[:5])
    await lab.make(runs[5:])
    journal = await lab.journal()
    claims, order = await lab.claim(journal), []
    assert sorted(claim.lane for claim in claims) == ["a", "b", "c"]
    while claims:
        order += [claim.run_id for claim in claims]
        assert len({claim.lane for claim in claims}) == len(claims)
        claims = await commit_ends(journal, claims)
    for lane in "abc":
        wanted = [run.run_id for run in runs if run.lane == lane]
        assert [run_id for run_id in order if run_id in wanted] == wanted
    assert await lab.rows("select from automation.lanes where head_seq <> tail_seq") == []


async def test_a_sleeping_run_gives_its_slot_back_and_keeps_its_lane(lab: Lab) -> None:
    await lab.queue(limit=1, ordered=True)
    first, second, other = lab.run("a", ordered=True), lab.run("a", ordered=True), lab.run("b", ordered=True)
    await lab.make([first, second, other])
    journal, schedule = await lab.journal(), lab.schedule()
    (claim,) = await lab.claim(journal)
    assert claim.run_id == first.run_id
    (passed,) = await journal.commit(Batch(rests=[rest_of(claim, due())], room=10))
    assert passed.run_id == other.run_id  # not the second of the lane
    assert await commit_ends(journal, [passed]) == []
    assert await schedule.feed() == []
    assert await schedule.wake_due() == 1
    (grant,) = await schedule.feed()
    assert (grant.run_id, grant.fence) == (first.run_id, 2)
    (again,) = await lab.claim(journal)
    (last,) = await commit_ends(journal, [again])
    assert last.run_id == second.run_id


async def test_a_blocked_run_keeps_its_lane_and_no_slot(lab: Lab) -> None:
    await lab.queue(limit=1, ordered=True)
    await lab.make([lab.run("a", ordered=True), lab.run("a", ordered=True)])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    assert await journal.commit(Batch(rests=[rest_of(claim, None, "blocked")], room=10)) == []
    assert await lab.schedule().wake_due() == 0
    assert await lab.schedule().feed() == []
    assert await lab.states() == {"blocked": 1, "pending": 1}
    assert await lab.taken() == 0


async def test_a_woken_run_goes_before_runs_that_never_ran(lab: Lab) -> None:
    await lab.queue(limit=1)
    runs = [lab.run() for _ in range(3)]
    await lab.make(runs)
    journal, schedule = await lab.journal(), lab.schedule()
    (claim,) = await lab.claim(journal)
    (second,) = await journal.commit(Batch(rests=[rest_of(claim, due())], room=1))
    assert await schedule.wake_due() == 1
    (next_,) = await commit_ends(journal, [second])
    assert next_.run_id == claim.run_id


async def test_lanes_of_a_queue_share_its_slots_fairly(lab: Lab) -> None:
    """A lane with many runs does not hold up one that comes later with few."""
    await lab.queue(limit=1, ordered=True)
    await lab.make([lab.run("busy", ordered=True) for _ in range(20)])
    journal = await lab.journal()
    claims = await lab.claim(journal)
    for _ in range(5):
        claims = await commit_ends(journal, claims)
    await lab.make([lab.run("late", ordered=True) for _ in range(2)])
    lanes = []
    for _ in range(4):
        claims = await commit_ends(journal, claims)
        lanes += [claim.lane for claim in claims]
    assert lanes.count("late") == 2


async def test_a_recount_repairs_drift(lab: Lab) -> None:
    await lab.queue(limit=5)
    await lab.make([lab.run() for _ in range(4)])
    journal = await lab.journal()
    (claim, *_) = await lab.claim(journal, room=2)
    await commit_ends(journal, [claim], room=0)
    await lab.rows("update automation.queues set running = 77")
    await lab.schedule().recount()
    assert await lab.value("select running from automation.queues") == 3
    assert await lab.taken() == await lab.holding() == 3


async def test_a_recount_counts_a_run_that_ends_meanwhile_once(lab: Lab) -> None:
    """Between the fold and the count a run ends: its delta must go with the count that left it out."""
    await lab.queue(limit=5)
    await lab.make([lab.run() for _ in range(4)])
    journal = await lab.journal()
    claims = await lab.claim(journal)
    sql, wanted = statements("grants"), {"projects": [PROJECT], "queues": [QUEUE]}
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute(sql["lock_queues"], wanted)
        await conn.execute(sql["fold_deltas"], wanted)
        await commit_ends(journal, claims[:2], room=0)
        await conn.execute(sql["recount"], {"project": PROJECT, "queue": QUEUE})
    assert await lab.taken() == await lab.holding() == 2


async def test_empty_lanes_are_swept_and_made_again(lab: Lab) -> None:
    await lab.queue(limit=10, ordered=True)
    await lab.make([lab.run("a", ordered=True), lab.run("b", ordered=True)])
    journal = await lab.journal()
    claims = await lab.claim(journal)
    await commit_ends(journal, [claim for claim in claims if claim.lane == "a"])
    await lab.schedule().sweep()
    assert await lab.column("select lane from automation.lanes") == ["b"]
    (grant, *_) = await lab.make([lab.run("a", ordered=True), lab.run("a", ordered=True)])
    (claim,) = await lab.claim(journal)
    assert (claim.run_id, claim.lane_seq) == (grant.run_id, 1)
    (second,) = await commit_ends(journal, [claim])
    assert second.lane_seq == 2


async def test_a_lane_that_is_being_used_is_not_swept(lab: Lab) -> None:
    await lab.queue(limit=10, ordered=True)
    await lab.make([lab.run("a", ordered=True)])
    journal = await lab.journal()
    await commit_ends(journal, await lab.claim(journal))
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("update automation.lanes set tail_seq = tail_seq + 1")
        await lab.schedule().sweep()  # skips the locked row
        await conn.commit()
    assert await lab.rows("select lane, head_seq, tail_seq from automation.lanes") == [
        {"lane": "a", "head_seq": 1, "tail_seq": 2}
    ]


async def test_a_run_that_comes_while_its_lane_is_passed_on_is_not_forgotten(lab: Lab) -> None:
    """Lock, then look: the end waits for the lane, and must see what came while it waited."""
    await lab.queue(limit=10, ordered=True)
    await lab.make([lab.run("a", ordered=True)])
    journal = await lab.journal()
    claims = await lab.claim(journal)
    late = lab.run("a", ordered=True)
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("select from automation.lanes for update")
        ending = asyncio.ensure_future(commit_ends(journal, claims))
        await lab.waits_for_lock("a44-executor")
        making = asyncio.ensure_future(lab.make([late]))
        await lab.waits_for_lock("a44-lab")
        await conn.commit()
    passed, made = await ending, await making
    assert [claim.run_id for claim in passed] + [grant.run_id for grant in made] == [late.run_id]


class TwoSessions:
    """Two executors that do whatever comes into their heads, and what they have seen."""

    def __init__(self, lab: Lab, journals: Sequence[PostgresJournal], chance: random.Random) -> None:
        self.lab = lab
        self.journals = journals
        self.chance = chance
        self.held: list[dict[str, Claim]] = [{}, {}]
        self.begun: dict[str, list[int]] = {}

    def take(self, place: int, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.held[place][claim.run_id] = claim
            assert claim.lane_seq is not None
            self.begun.setdefault(claim.lane, []).append(claim.lane_seq)

    async def act(self, place: int) -> None:
        """Ends some runs, parks others, takes what is handed on or granted."""
        chance, held = self.chance, self.held[place]
        batch = Batch(look_for_granted=chance.random() < 0.5, room=chance.randint(0, 6))
        for claim in chance.sample(list(held.values()), k=chance.randint(0, len(held))):
            del held[claim.run_id]
            if chance.random() < 0.3:
                batch.rests.append(rest_of(claim, due()))
            else:
                batch.ends.append(end_of(claim))
        self.take(place, await self.journals[place].commit(batch))

    async def end_all(self) -> None:
        for place, journal in enumerate(self.journals):
            self.take(place, await self.lab.claim(journal))
            ends = [end_of(claim) for claim in self.held[place].values()]
            self.held[place].clear()
            self.take(place, await journal.commit(Batch(ends=ends, room=5)))

    async def check(self, limit: int) -> None:
        counted = await self.lab.holding()
        assert counted <= limit
        assert await self.lab.taken() == counted
        lanes = await self.lab.column(
            "select lane from automation.live_runs where state in ('granted', 'running') group by 1 having count(*) > 1"
        )
        assert lanes == []

    def check_order(self) -> None:
        for lane, seqs in self.begun.items():
            assert seqs == sorted(seqs), lane
            assert sorted(set(seqs)) == list(range(1, seqs[-1] + 1)), lane


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_done_the_limit_holds_and_lanes_keep_their_order(lab: Lab, seed: int) -> None:
    """Random makes, claims, ends, parks and feeds by two sessions at once, checked after every step."""
    chance = random.Random(seed)
    limit, schedule = chance.randint(1, 5), lab.schedule()
    await lab.queue(limit=limit, ordered=True)
    both = TwoSessions(lab, [await lab.journal(owner=f"executor-{n}") for n in (1, 2)], chance)
    made = 0
    for _ in range(40):
        if chance.random() < 0.4:
            runs = [lab.run(chance.choice("abcd"), ordered=True) for _ in range(chance.randint(1, 6))]
            made += len(runs)
            await asyncio.gather(lab.make(runs), both.act(0), both.act(1))
        else:
            await asyncio.gather(both.act(0), both.act(1), schedule.feed())
        await both.check(limit)
        if chance.random() < 0.3:
            await schedule.wake_due()
    while await lab.value("select count(*) from automation.live_runs"):
        await schedule.wake_due()
        await schedule.feed()
        ready = await lab.value("select count(*) from automation.live_runs where state = 'pending' and ready")
        assert ready == 0 or await lab.holding() == limit, "a run waits while slots are free"
        await both.end_all()
        await both.check(limit)
    assert await lab.states() == {"succeeded": made}
    both.check_order()
    await schedule.recount()
    assert await lab.value("select running from automation.queues") == 0


async def test_runs_of_other_projects_and_queues_take_no_slots(lab: Lab) -> None:
    await lab.queue(limit=1)
    await lab.queue("q_other", limit=1)
    await lab.queue(limit=1, project="bakery")
    runs = [lab.run(), lab.run(queue="q_other"), lab.run(project="bakery"), lab.run()]
    assert {grant.run_id for grant in await lab.make(runs)} == {run.run_id for run in runs[:3]}
