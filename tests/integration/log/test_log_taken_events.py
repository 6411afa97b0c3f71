"""A project's events as pages and as news: in their order, each once, whatever else is under way."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.statements import statements
from processors.adapters.postgres.taken_events import PostgresTakenEvents
from schemas.ids import new_event_id
from tests.integration.log.lab import PROJECT
from tests.integration.log.polls import Stage, Topic

TAKE = "insert into automation.inbox (consumer, event_id) values ('ingest', %s)"


@pytest_asyncio.fixture
async def taken(stage: Stage) -> AsyncIterator[PostgresTakenEvents]:
    async with open_pool(stage.lab.dsn, "tail") as pool:
        yield PostgresTakenEvents(pool)


async def ingested(stage: Stage, topic: Topic, *kinds: str) -> list[str]:
    """Events of these types, a second apart; their ids."""
    events = [topic.event(id=new_event_id(topic.millis + 1000 * at), type=kind) for at, kind in enumerate(kinds)]
    await stage.ingest([topic.direct(id=one.id, type=one.type) for one in events])
    return [one.id for one in events]


async def test_pages_tell_the_newest_first_with_what_each_event_made(stage: Stage, taken: PostgresTakenEvents) -> None:
    topic = Topic()
    first, second, third = await ingested(stage, topic, "order.paid", "nobody.asks", "order.paid")
    await stage.lab.rows(TAKE, f"other/{new_event_id(topic.millis)}")
    await stage.lab.rows(TAKE, f"{PROJECT}/signup-77")  # an id of its producer's
    page = await taken.list_events(PROJECT, since=None, after=None, limit=9)
    assert [one.event_id for one in page] == [third, second, first]
    assert [(one.type, [run.workflow_id for run in one.runs]) for one in page] == [
        ("order.paid", ["wf_orders"]), (None, []), ("order.paid", ["wf_orders"]),
    ]  # fmt: skip
    (run,) = await stage.lab.rows("select * from automation.runs where event_id = %s", first)
    assert (page[2].idempotency_key, page[2].runs[0].run_id) == (run["idempotency_key"], run["run_id"])
    assert page[2].accepted_at == datetime.fromtimestamp(topic.millis / 1000, UTC)
    after = await taken.list_events(PROJECT, since=None, after=third, limit=1)
    assert [one.event_id for one in after] == [second]
    since = datetime.fromtimestamp(topic.millis / 1000 + 1, UTC)
    assert [one.event_id for one in await taken.list_events(PROJECT, since=since, after=None, limit=9)] == [
        third,
        second,
    ]
    assert await taken.list_events("nobody", since=None, after=None, limit=9) == []


async def test_news_is_told_once_in_order_and_what_commits_late_is_not_lost(
    stage: Stage, taken: PostgresTakenEvents
) -> None:
    topic = Topic()
    mark = await taken.mark(PROJECT, datetime.fromtimestamp(topic.millis / 1000, UTC))
    assert (await taken.fresh(mark)).events == []
    late = new_event_id(topic.millis + 500)
    async with await AsyncConnection.connect(stage.lab.dsn) as slow:
        await slow.execute(TAKE, (f"{PROJECT}/{late}",))  # holds the snapshot back all the while
        first = await ingested(stage, topic, "order.paid", "order.paid")
        fresh = await taken.fresh(mark)
        assert [one.event_id for one in fresh.events] == first
        second = await ingested(stage, topic, "nobody.asks")
        again = await taken.fresh(fresh.mark)
        assert [one.event_id for one in again.events] == second
        assert (await taken.fresh(again.mark)).events == []
        await slow.commit()
    told = await taken.fresh(again.mark)
    assert [one.event_id for one in told.events] == [late]
    assert (await taken.fresh(told.mark)).events == []


async def test_what_was_accepted_before_is_told_where_it_is_asked_for(stage: Stage, taken: PostgresTakenEvents) -> None:
    topic = Topic()
    events = await ingested(stage, topic, *["nobody.asks"] * 3)
    begin = datetime.fromtimestamp(topic.millis / 1000, UTC)
    for seconds, expected in ((0, events), (1, events[1:]), (5, [])):
        fresh = await taken.fresh(await taken.mark(PROJECT, begin + timedelta(seconds=seconds)))
        assert [one.event_id for one in fresh.events] == expected


async def test_more_than_a_page_at_once_is_told_whole(
    stage: Stage, taken: PostgresTakenEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processors.adapters.postgres.taken_events._PAGE", 2)
    topic = Topic()
    events = await ingested(stage, topic, *["nobody.asks"] * 5)
    mark = await taken.mark(PROJECT, datetime.fromtimestamp(topic.millis / 1000, UTC))
    fresh = await taken.fresh(mark)
    assert [one.event_id for one in fresh.events] == events
    assert (await taken.fresh(fresh.mark)).events == []


@pytest.mark.parametrize("name", ["list_events", "find_new_events"])
async def test_what_is_read_grows_with_the_projects_own_events_alone(stage: Stage, name: str) -> None:
    at = datetime.now(UTC)
    first, last = new_event_id(int(at.timestamp() * 1000)), "evt_~"
    async with await psycopg.AsyncConnection.connect(stage.lab.dsn) as conn:
        await conn.execute(
            "insert into automation.inbox (consumer, event_id)"
            " select 'ingest', 'other/' || %s || n from generate_series(1, 20000) n", (first,)
        )  # fmt: skip
        await conn.execute(TAKE, (f"alone/{first}",))
        await conn.execute("analyze automation.inbox")
        asked = {"project_id": "alone", "first": "evt_", "last": last, "limit": 50, "snapshot": "1:1:"}
        explained = "explain (analyze, buffers, format json) " + statements("taken_events")[name]
        row: Any = await (await conn.execute(explained.encode(), asked)).fetchone()
        plan = row[0][0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20
