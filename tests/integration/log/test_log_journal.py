"""The journal: fenced, claimed once, committed once whatever becomes of the connection, and mail is never missed."""

import asyncio
import os
import random
import socket
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from processors.adapters.postgres.journal import PostgresJournal
from processors.ports.journal import Announcement, Batch, Claim, Entry, Release, RunEnd, SessionOver
from schemas.errors import Broken, Unavailable
from schemas.records import RUN_ITEM, ErrorInfo, Kind, Record, Status
from tests.integration.log.lab import DEAD_LETTERS, PROJECT, Lab, end_of, entry_of, rest_of

HOUR = timedelta(hours=1)


async def one_claim(lab: Lab, journal: PostgresJournal, *, ordered: bool = False) -> Claim:
    await lab.queue(ordered=ordered)
    await lab.make([lab.run("a", ordered=ordered)])
    (claim,) = await lab.claim(journal)
    return claim


async def test_a_claim_tells_all_that_the_head_row_knows(lab: Lab) -> None:
    await lab.queue(ordered=True)
    run = lab.run("lane-7", ordered=True)
    await lab.make([run])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    for name in ("run_id", "workflow_id", "version", "event_id", "idempotency_key", "partition_key", "input", "lane"):
        assert getattr(claim, name) == getattr(run, name), name
    assert (claim.fence, claim.generation, claim.lane_seq, claim.crashes) == (1, 1, 1, 0)
    assert (claim.owner_lost, claim.has_mail) == (False, False)
    assert claim.occurred_at == datetime(2026, 7, 19, 14, 0, tzinfo=UTC)
    assert abs((journal.now() - claim.started_at).total_seconds()) < 5


@pytest.mark.parametrize("is_hinted", [True, False])
async def test_two_claims_of_one_grant_have_one_winner(lab: Lab, is_hinted: bool) -> None:
    await lab.queue()
    runs = [lab.run() for _ in range(20)]
    await lab.make(runs)
    journals = [await lab.journal(owner=f"executor-{n}") for n in range(3)]
    hinted = [run.run_id for run in runs] if is_hinted else []
    wish = Batch(hinted=hinted, look_for_granted=not is_hinted, room=20)
    won = [claim.run_id for claims in await asyncio.gather(*(one.commit(wish) for one in journals)) for claim in claims]
    assert sorted(won) == sorted(run.run_id for run in runs)


async def test_a_hint_for_a_run_that_is_not_granted_claims_nothing(lab: Lab) -> None:
    await lab.queue(limit=1)
    runs = [lab.run(), lab.run()]
    await lab.make(runs)
    journal = await lab.journal()
    wish = Batch(hinted=[runs[1].run_id, "run_unheard_of"], room=5)
    assert await journal.commit(wish) == []


async def test_claims_by_hint_and_by_look_share_the_room(lab: Lab) -> None:
    await lab.queue()
    runs = [lab.run() for _ in range(6)]
    await lab.make(runs)
    journal = await lab.journal()
    wish = Batch(hinted=[runs[5].run_id, runs[4].run_id], look_for_granted=True, room=3)
    assert len(await journal.commit(wish)) == 3


async def test_records_come_back_as_they_were_written(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    due = datetime(2026, 8, 1, 12, 30, 0, 123456, tzinfo=UTC)
    error = ErrorInfo("E_UPSTREAM_503", "Upstream", "503 \N{SNOWMAN} after 2 s", "flow.py:7", True, 2.5)
    now = datetime.now(UTC)
    records = [
        Record(1, Kind.SLEEP, "nap", 0, Status.OPENED, 0, final=False, due=due, recorded_at=now),
        Record(2, Kind.STEP, "a", 1, Status.FAILED, 0, final=False, due=due, key="k", error=error, cost=0.25,
               recorded_at=now),
        Record(3, Kind.STEP, "a", 2, Status.SUCCEEDED, 0, final=True, key="k", cost=0.5, recorded_at=now,
               value='{"n":1e2,"big":123456789012345678901}'),
        Record(4, Kind.RUN, RUN_ITEM, 0, Status.CLOSING, 3, final=False, value="null", recorded_at=now),
    ]  # fmt: skip
    await journal.commit(Batch(entries=[Entry(claim.run_id, 1, PROJECT, record) for record in records]))
    assert (await journal.histories([claim.run_id]))[claim.run_id] == records
    (row,) = await lab.rows(
        "select run_id, step_id, attempt, idempotency_key, status, error_code, started_at, finished_at, result"
        " from automation.step_attempts where run_id = %s and error_code is not null",
        claim.run_id,
    )
    assert (row["step_id"], row["attempt"], row["error_code"]) == ("a", 1, "E_UPSTREAM_503")
    assert (row["finished_at"] - row["started_at"]).total_seconds() == pytest.approx(0.25)


async def test_the_end_of_a_run_is_history_an_event_and_no_live_row(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    told = Announcement("t.run-events", claim.run_id, b"ended")
    await journal.commit(Batch(entries=[entry_of(claim, 1)], ends=[end_of(claim)], announcements=[told]))
    (row,) = await lab.rows("select * from automation.runs")
    assert (row["state"], row["result"], row["input"]) == ("succeeded", "null", claim.input)
    assert row["ended_at"] >= row["started_at"]
    assert await lab.column("select partition_key from automation.outbox") == [claim.run_id]
    assert await lab.rows("select from automation.dead_letters") == []


async def test_a_run_that_ends_in_error_becomes_a_dead_letter(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    error = ErrorInfo("E_UPSTREAM_503", "Upstream", "no answer")
    end = RunEnd(
        claim.run_id, claim.project_id, claim.queue_id, claim.lane, None, "failed", None, error,
        "dlq_01J00000000000000000000000", "max_attempts_exceeded", "step a failed with E_UPSTREAM_503 on attempt 3",
    )  # fmt: skip
    await journal.commit(Batch(ends=[end]))
    (row,) = await lab.rows("select * from automation.dead_letters")
    assert (row["run_id"], row["reason"], row["error_code"]) == (claim.run_id, end.reason, error.code)
    assert (row["workflow_id"], row["trigger_id"], row["queue_id"]) == ("wf_orders", "trg_orders", claim.queue_id)
    assert (await lab.rows("select error_code from automation.runs_ended")) == [{"error_code": "E_UPSTREAM_503"}]


# the fence


async def test_a_session_that_was_closed_commits_nothing(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.kill_session()
    (grant,) = await lab.schedule().reap()
    assert (grant.run_id, grant.fence) == (claim.run_id, 2)
    with pytest.raises(SessionOver):
        await journal.commit(Batch(entries=[entry_of(claim, 1)], ends=[end_of(claim)]))
    assert await lab.rows("select from automation.step_attempts") == []
    assert await lab.states() == {"granted": 1}
    other = await lab.journal(owner="executor-2")
    (again,) = await lab.claim(other)
    assert (again.fence, again.owner_lost, again.crashes) == (2, True, 1)
    await other.commit(Batch(entries=[entry_of(claim, 1)], ends=[end_of(again)]))
    assert await lab.states() == {"succeeded": 1}


async def test_a_batch_renews_a_lease_that_had_passed_as_long_as_nobody_closed_the_session(lab: Lab) -> None:
    journal = await lab.journal()
    await lab.kill_session()
    await journal.commit(Batch())
    assert await lab.schedule().reap() == []
    assert await lab.value("select lease_until > clock_timestamp() + interval '20 seconds' from automation.sessions")


async def test_a_reaper_waits_for_no_batch_and_a_batch_for_the_reaper(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.kill_session()
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("update automation.sessions set alive = false")  # a reaper, before its commit
        committing = asyncio.ensure_future(journal.commit(Batch(ends=[end_of(claim)])))
        await lab.waits_for_lock("a44-executor")
        await conn.commit()
    with pytest.raises(SessionOver):
        await committing
    assert await lab.states() == {"running": 1}


async def test_a_new_session_of_a_process_gives_up_the_one_before(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await journal.open()
    (grant,) = await lab.schedule().reap()
    assert grant.run_id == claim.run_id
    assert len(await lab.claim(journal)) == 1


async def test_runs_that_are_given_back_go_on_elsewhere_at_once(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run(), lab.run()])
    journal, other = await lab.journal(), await lab.journal(owner="executor-2")
    first, second = await lab.claim(journal)
    await journal.release([Release(first.run_id, in_flight=False), Release(second.run_id, in_flight=True)])
    again = {claim.run_id: claim for claim in await lab.claim(other)}
    assert (again[first.run_id].owner_lost, again[first.run_id].fence) == (False, 2)
    assert (again[second.run_id].owner_lost, again[second.run_id].crashes) == (True, 0)
    assert await lab.value("select alive from automation.sessions where owner = 'executor-1'") is False


async def test_a_lost_owner_is_remembered_until_the_run_rests(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.kill_session()
    await lab.schedule().reap()
    (again,) = await lab.claim(await lab.journal(owner="executor-2"))
    assert again.owner_lost
    await lab.kill_session("executor-2")
    await lab.schedule().reap()
    third = await lab.journal(owner="executor-3")
    (last,) = await lab.claim(third)
    assert (last.owner_lost, last.crashes, last.fence) == (True, 2, 3)
    await third.commit(Batch(entries=[entry_of(claim, 1)], crashes={last.run_id: 0}))
    assert await lab.value("select crashes from automation.live_runs") == 0
    await third.commit(Batch(rests=[rest_of(last, datetime.now(UTC) - HOUR)]))
    await lab.schedule().wake_due()
    await lab.schedule().feed()
    (woken,) = await lab.claim(third)
    assert not woken.owner_lost


# the connection


def cut(journal: PostgresJournal) -> None:
    """The network goes: the client hears of it at once, the server works on with what has arrived."""
    assert journal._conn is not None
    with socket.socket(fileno=os.dup(journal._conn.pgconn.socket)) as wire:
        wire.shutdown(socket.SHUT_RDWR)


async def broken(lab: Lab, journal: PostgresJournal, batch: Batch, chance: random.Random) -> list[Claim]:
    """Commit a batch and break its connection on one of its ends, at a random moment around the commit."""
    await journal.commit(Batch())  # alive for sure
    backend = await lab.backend_of(journal)
    committing = asyncio.ensure_future(journal.commit(batch))
    await asyncio.sleep(chance.random() * 0.005)
    if chance.random() < 0.4:
        await lab.rows("select pg_terminate_backend(%s)", backend)
    elif not committing.done():
        cut(journal)
    return list(await committing)


@pytest.mark.parametrize("seed", range(2))
async def test_what_was_sent_is_committed_once_whenever_the_connection_dies(lab: Lab, seed: int) -> None:
    chance = random.Random(seed)
    await lab.queue(limit=1000)
    journal = await lab.journal()
    made: set[str] = set()
    for _ in range(40):
        runs = [lab.run() for _ in range(2)]
        made |= {run.run_id for run in runs}
        await lab.make(runs)
        claims = await broken(lab, journal, Batch(look_for_granted=True, room=10), chance)
        assert {claim.run_id for claim in claims} == {run.run_id for run in runs}
        batch = Batch(
            entries=[entry_of(claim, seq) for claim in claims for seq in (1, 2, 3)],
            ends=[end_of(claim) for claim in claims],
            announcements=[Announcement("t.run-events", claim.run_id, b"ended") for claim in claims],
        )
        await broken(lab, journal, batch, chance)
    assert await lab.states() == {"succeeded": len(made)}
    assert set(await lab.column("select partition_key from automation.outbox")) == made
    assert await lab.value("select count(*) from automation.outbox") == len(made)
    assert await lab.value("select count(*) from automation.step_attempts") == 3 * len(made)
    assert await lab.taken() == 0


@pytest.mark.parametrize("fate", ["commits", "dies"])
async def test_a_batch_that_the_server_still_works_on_is_waited_for(lab: Lab, fate: str) -> None:
    """The client lost its connection; asked at once, the witness would say that nothing was committed."""
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    batch = Batch(entries=[entry_of(claim, 1)], ends=[end_of(claim)])
    backend = await lab.backend_of(journal)
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("select from automation.live_runs for no key update")
        committing = asyncio.ensure_future(journal.commit(batch))
        await lab.waits_for_lock("a44-executor")
        cut(journal)
        await lab.waits_for_lock("a44-executor", waiters=2)
        if fate == "dies":
            await lab.rows("select pg_terminate_backend(%s)", backend)
        await conn.commit()
    await committing
    assert await lab.states() == {"succeeded": 1}
    assert await lab.value("select count(*) from automation.step_attempts") == 1


async def test_an_answer_that_was_lost_is_asked_again_as_all_that_is_owned(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run() for _ in range(3)])
    journal = await lab.journal()
    first = await lab.claim(journal, room=1)
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        # Nobody may read the answer: the backend dies while it waits to commit no more, but has committed.
        await conn.execute("select from automation.sessions for update")
        claiming = asyncio.ensure_future(lab.claim(journal, room=10))
        await lab.waits_for_lock("a44-executor")
        await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-executor"))
        await conn.commit()
    again = await claiming
    assert len({claim.run_id for claim in [*first, *again]}) == 3


async def test_a_session_that_is_closed_while_its_connection_is_away_is_over(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-executor"))
    await lab.kill_session()
    await lab.schedule().reap()
    with pytest.raises(SessionOver):
        await journal.commit(Batch(ends=[end_of(claim)]))
    assert await lab.states() == {"granted": 1}


async def test_questions_survive_a_broken_connection(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await journal.commit(Batch(entries=[entry_of(claim, 1)]))
    await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-executor"))
    assert len((await journal.histories([claim.run_id]))[claim.run_id]) == 1
    await lab.rows("select pg_terminate_backend(%s)", await lab.backend("a44-executor"))
    assert await journal.unread_mail() == []
    await journal.commit(Batch(ends=[end_of(claim)]))


async def test_a_batch_that_holds_what_cannot_be_stored_says_so_and_harms_nothing(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    for value in ("a\0b", "half a pair: \ud800"):
        with pytest.raises(Broken):
            await journal.commit(Batch(entries=[entry_of(claim, 1, value)]))
    await journal.commit(Batch(entries=[entry_of(claim, 1)], ends=[end_of(claim)]))
    assert await lab.states() == {"succeeded": 1}


async def test_without_postgres_there_is_no_session() -> None:
    journal = PostgresJournal("postgresql://a44@127.0.0.1:1/none?connect_timeout=1", "executor-1", 30.0, DEAD_LETTERS)
    with pytest.raises(Unavailable):
        await journal.open()
    await journal.aclose()


async def test_f11_what_the_end_of_a_run_sets_off_is_in_its_transaction(lab: Lab) -> None:
    """The next run of the lane, the slot and the announcement: all of it or nothing, whatever is wrong with a part."""
    await lab.queue(ordered=True)
    first, second = lab.run(lane="a", ordered=True), lab.run(lane="a", ordered=True)
    await lab.make([first, second])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    unsayable = Announcement("t.run-events", "run\0", b"ended")
    with pytest.raises(Broken):
        await journal.commit(Batch(ends=[end_of(claim)], announcements=[unsayable]))
    assert await lab.states() == {"running": 1, "pending": 1}
    assert await lab.value("select head_seq from automation.lanes") == 0
    assert await lab.rows("select from automation.outbox") == []
    (then,) = await journal.commit(
        Batch(ends=[end_of(claim)], announcements=[Announcement("t.run-events", claim.run_id, b"ended")], room=1)
    )
    assert then.run_id == second.run_id
    assert await lab.value("select count(*) from automation.outbox") == 1
