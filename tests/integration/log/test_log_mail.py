"""Mail to runs: one way in for everything from outside, never missed and consumed once."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg

from processors.adapters.postgres.journal import PostgresJournal
from processors.ports.journal import Batch, Claim
from tests.integration.log.lab import Lab, end_of, rest_of

HOUR = timedelta(hours=1)


async def one_claim(lab: Lab, journal: PostgresJournal, *, ordered: bool = False) -> Claim:
    await lab.queue(ordered=ordered)
    await lab.make([lab.run("a", ordered=ordered)])
    (claim,) = await lab.claim(journal)
    return claim


async def test_mail_of_a_running_run_is_read_and_consumed_once(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.send_mail(claim.run_id)
    (mail,) = await journal.unread_mail()
    assert (mail.run_id, mail.kind, mail.body, mail.actor) == (claim.run_id, "cancel", "stop", "maria")
    assert await journal.unread_mail() == [mail]
    await journal.commit(Batch(mail=[mail.mail_id]))
    assert await journal.unread_mail() == []
    assert await lab.value("select has_mail from automation.live_runs") is False
    assert await lab.value("select count(*) from automation.run_mail") == 0


async def test_mail_of_another_session_is_not_ours(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.send_mail(claim.run_id)
    other = await lab.journal(owner="executor-2")
    assert await other.unread_mail() == []


async def test_mail_that_comes_while_other_mail_is_consumed_keeps_the_flag_up(lab: Lab) -> None:
    """Lock, then look: the sender holds the head row while the batch arrives."""
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.send_mail(claim.run_id, body="first")
    (first,) = await journal.unread_mail()
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("select from automation.live_runs where run_id = %s for no key update", (claim.run_id,))
        await conn.execute(
            "insert into automation.run_mail (run_id, kind, body, actor) values (%s, 'cancel', 'second', 'joao')",
            (claim.run_id,),
        )
        await conn.execute("update automation.live_runs set has_mail = true where run_id = %s", (claim.run_id,))
        consuming = asyncio.ensure_future(journal.commit(Batch(mail=[first.mail_id])))
        await lab.waits_for_lock("a44-executor")
        await conn.commit()
    await consuming
    (second,) = await journal.unread_mail()
    assert second.body == "second"


async def test_mail_that_comes_while_the_run_ends_stops_no_end(lab: Lab) -> None:
    """The end waits for the sender's change of the head row, and takes the row as it is by then."""
    journal = await lab.journal()
    claim = await one_claim(lab, journal, ordered=True)
    await lab.make([lab.run("a", ordered=True)])
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("update automation.live_runs set has_mail = true where run_id = %s", (claim.run_id,))
        ending = asyncio.ensure_future(journal.commit(Batch(ends=[end_of(claim)], room=1)))
        await lab.waits_for_lock("a44-executor")
        await conn.commit()
    (following,) = await ending
    assert following.lane_seq == 2
    assert await lab.column("select run_id from automation.runs_ended") == [claim.run_id]
    assert await lab.column("select run_id from automation.live_runs") == [following.run_id]


async def test_mail_that_comes_while_the_run_parks_wakes_it(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    async with await psycopg.AsyncConnection.connect(lab.dsn) as conn:
        await conn.execute("select from automation.live_runs where run_id = %s for no key update", (claim.run_id,))
        await conn.execute(
            "insert into automation.run_mail (run_id, kind, body, actor) values (%s, 'cancel', 'stop', 'maria')",
            (claim.run_id,),
        )
        await conn.execute("update automation.live_runs set has_mail = true where run_id = %s", (claim.run_id,))
        parking = asyncio.ensure_future(journal.commit(Batch(rests=[rest_of(claim, datetime.now(UTC) + HOUR)])))
        await lab.waits_for_lock("a44-executor")
        await conn.commit()
    await parking
    schedule = lab.schedule()
    assert (await schedule.look()).timers_due
    assert await schedule.wake_due() == 1
    await schedule.feed()
    (again,) = await lab.claim(journal)
    assert again.has_mail
    assert len(await journal.unread_mail()) == 1


async def test_mail_in_the_batch_that_parks_does_not_wake(lab: Lab) -> None:
    journal = await lab.journal()
    claim = await one_claim(lab, journal)
    await lab.send_mail(claim.run_id)
    (mail,) = await journal.unread_mail()
    rest = rest_of(claim, datetime.now(UTC) + HOUR)
    await journal.commit(Batch(rests=[rest], mail=[mail.mail_id]))
    assert (await lab.schedule().look()).timers_due is False
