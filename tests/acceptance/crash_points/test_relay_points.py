"""The relay is killed before and after it published: the same rows go out again under the same numbers."""

import pytest

from tests.support.crash_site import EVENTS, PATIENCE, Site
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka, pytest.mark.timeout(300)]

CURSOR = "select cursor_xid::text::bigint, cursor_id from automation.relay_shards where shard = 0"


async def falls_with_an_event(site: Site, point: str, key: str) -> None:
    """The relay has died with this event in its hands, and its cursor stands before it."""
    await until_everything_is_sent(site)
    before = await site.ask(CURSOR)
    site.arm("relay", point)
    assert (await site.send(key)).status == 202
    await site.death("relay")
    assert await site.ask(CURSOR) == before


async def until_everything_is_sent(site: Site) -> None:
    async def sent() -> bool:
        waiting = await site.ask(
            "select count(*) from automation.outbox o, automation.relay_shards s"
            " where s.shard = 0 and o.shard = 0 and (o.xid, o.id) > (s.cursor_xid, s.cursor_id)"
        )
        return waiting == [(0,)]

    await until(sent, "the relay has nothing to send", PATIENCE)


async def goes_on(site: Site, key: str) -> list[bytes]:
    """The run is made once and ends; answers the numbers of the event's records on the topic."""
    await site.start("relay")
    (run_id,) = await site.runs_when_made(key)
    await site.succeeded(run_id)
    await until_everything_is_sent(site)
    assert await site.runs_of(key) == [run_id]
    assert site.effects(key) == ["first", "second"]
    return [number for its_key, number in await site.records(EVENTS) if its_key == key.encode()]


async def test_after_read_before_publish(site: Site) -> None:
    await falls_with_an_event(site, "after_read_before_publish", "unsent")
    assert [key for key, _ in await site.records(EVENTS) if key == b"unsent"] == []
    assert len(await goes_on(site, "unsent")) == 1


async def test_after_publish_before_mark(site: Site) -> None:
    await falls_with_an_event(site, "after_publish_before_mark", "unmarked")
    numbers = await goes_on(site, "unmarked")
    assert len(numbers) == 2
    assert len(set(numbers)) == 1
