"""A gateway is killed on each side of its commit: a sender that repeats its request gets one run, whichever it was."""

import pytest

from schemas.errors import Unavailable
from tests.support.crash_site import Site, attempts

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka, pytest.mark.timeout(300)]

KEYS_HELD = "select count(*) from automation.idempotency_keys where idempotency_key = %s"


async def falls_with_a_request(site: Site, point: str, key: str) -> None:
    """The sender has no answer; the gateway is up again."""
    site.arm("gateway", point)
    with pytest.raises(Unavailable):
        await site.run("wf_pair", key)
    await site.death("gateway")
    await site.start("gateway")
    await site.ready("gateway")


async def test_after_statements_before_commit_of_a_gateway(site: Site) -> None:
    await falls_with_a_request(site, "after_statements_before_commit", "door-open")
    assert await site.runs_of("door-open") == []
    assert await site.ask(KEYS_HELD, "door-open") == [(0,)]
    answer = await site.run("wf_pair", "door-open")
    assert answer.status == 202
    document = await site.succeeded(answer.document["run_id"])
    assert attempts(document) == [("first", 1, "succeeded"), ("second", 1, "succeeded")]
    assert site.effects("door-open") == ["first", "second"]
    assert await site.runs_of("door-open") == [answer.document["run_id"]]


async def test_after_db_write_before_publish(site: Site) -> None:
    await falls_with_a_request(site, "after_db_write_before_publish", "door-shut")
    (run_id,) = await site.runs_of("door-shut")
    document = await site.succeeded(run_id)  # nobody was woken, and it runs
    answer = await site.run("wf_pair", "door-shut")
    assert (answer.status, answer.document["run_id"]) == (200, run_id)
    assert attempts(document) == [("first", 1, "succeeded"), ("second", 1, "succeeded")]
    assert site.effects("door-shut") == ["first", "second"]
    assert await site.ends_told(run_id) == 1


async def test_after_db_write_before_publish_of_an_event(site: Site) -> None:
    site.arm("gateway", "after_db_write_before_publish")
    with pytest.raises(Unavailable):
        await site.send("event-shut")
    await site.death("gateway")
    (run_id,) = await site.runs_when_made("event-shut")  # the gateway is still away: the outbox announced it
    await site.start("gateway")
    await site.ready("gateway")
    await site.succeeded(run_id)
    assert (await site.send("event-shut")).document["status"] == "deduplicated"
    assert await site.runs_of("event-shut") == [run_id]
    assert site.effects("event-shut") == ["first", "second"]
