"""Ingest is killed on each side of its commit: an event straight from Kafka makes its run once, also one put off."""

import pytest

from tests.support.crash_site import EVENTS, PATIENCE, Site, attempts
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka, pytest.mark.timeout(300)]

INBOX = "select count(*) from automation.inbox where event_id like '%%/' || %s"
OF_EVENT = "select run_id from automation.runs where event_id = %s"
LETTERS = "select count(*) from automation.outbox where topic = 'a44.retry.10s.v1'"
READ = "select sum(next_offset)::bigint from automation.ingest_progress where topic = %s"


async def falls_with_an_event(site: Site, point: str, key: str) -> None:
    site.arm("ingest", point)
    site.produce(key)
    await site.death("ingest")


async def goes_on(site: Site, key: str) -> None:
    """The event becomes its one run."""
    await site.start("ingest")
    (run_id,) = await site.runs_when_made(key)
    document = await site.succeeded(run_id)
    await site.ready("ingest")
    assert attempts(document) == [("first", 1, "succeeded"), ("second", 1, "succeeded")]
    assert site.effects(key) == ["first", "second"]
    assert await site.runs_of(key) == [run_id]
    assert await site.ask(INBOX, f"evt_{key}") == [(1,)]
    assert await site.ends_told(run_id) == 1


@pytest.mark.parametrize("point", ["after_poll_before_commit", "after_statements_before_commit"])
async def test_nothing_of_a_poll_is_kept_before_its_commit(site: Site, point: str) -> None:
    before = await site.ask(READ, EVENTS)
    key = f"poll-{point}"
    await falls_with_an_event(site, point, key)
    assert await site.runs_of(key) == []
    assert await site.ask(INBOX, f"evt_{key}") == [(0,)]
    assert await site.ask(READ, EVENTS) == before
    await goes_on(site, key)


async def test_after_commit_before_ack(site: Site) -> None:
    await falls_with_an_event(site, "after_commit_before_ack", "unacked")
    assert len(await site.runs_of("unacked")) == 1
    read = await site.ask(READ, EVENTS)
    await goes_on(site, "unacked")
    assert await site.ask(READ, EVENTS) == read


async def test_after_commit_before_ack_of_what_is_put_off(site: Site) -> None:
    """Letter and offset are one commit: a death behind it loses nothing, and puts nothing off twice."""
    event = await site.large("put-off")
    with site.without_storage():
        site.arm("ingest", "after_commit_before_ack")
        site.produce_value("put-off", event)
        await site.death("ingest")
        assert await site.ask(LETTERS) == [(1,)]
        assert await site.ask(OF_EVENT, "evt_put-off") == []
    await site.start("ingest")

    async def is_made() -> bool:
        return bool(await site.ask(OF_EVENT, "evt_put-off"))

    await until(is_made, "it comes back and becomes a run", PATIENCE)
    ((run_id,),) = await site.ask(OF_EVENT, "evt_put-off")
    await site.succeeded(run_id)
    await site.ready("ingest")
    assert site.effects("put-off") == ["first", "second"]
    assert await site.ask(LETTERS) == [(1,)]
    assert await site.ask(INBOX, "evt_put-off") == [(1,)]
    assert await site.ends_told(run_id) == 1
