"""Events over HTTP: pages and a live stream of a project's own, filtered, without what they hold."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from schemas.ids import new_event_id, run_id
from tests.integration.gateway.conftest import PROJECT, Gateway
from tests.integration.gateway.histories import insert_ended

API = "/v1/automation/events"
TAKE = "insert into automation.inbox (consumer, event_id) values ('ingest', %s)"


def event_id(seconds: float = 0) -> str:
    return new_event_id(int((time.time() + seconds) * 1000))


async def take(gateway: Gateway, event: str, *, project: str = PROJECT, makes_run: bool = False) -> str:
    """An event as ingest leaves it; its run is of the type a.b and of trg_test."""
    if makes_run:
        run = run_id(project, event, "trg_test", 1)
        await insert_ended(gateway.dsn, run, project=project, state="failed")
        await gateway.rows("update automation.runs_ended set event_id = %s where run_id = %s", event, run)
    await gateway.rows(TAKE, f"{project}/{event}")
    return event


async def told(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The id and the document of each event of the stream."""
    fields = {"id": "", "event": ""}
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name in fields:
            fields[name] = value
        if name == "data" and fields["event"] == "event":
            yield fields["id"], json.loads(value)


def follow(gateway: Gateway, query: str = "", **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {gateway.token}", "Accept": "text/event-stream", **headers}
    return gateway.session.get(f"{gateway.url}{API}{query}", headers=sent)


async def test_pages_hold_each_event_once_and_a_filter_thins_them_out(gateway: Gateway) -> None:
    events = [await take(gateway, event_id(at), makes_run=at % 2 == 0) for at in range(-5, 0)]
    await take(gateway, event_id(-3), project="pj_other", makes_run=True)
    seen: list[Mapping[str, Any]] = []
    query = "?limit=2"
    while query:
        page = (await gateway.call("GET", f"{API}{query}")).body
        seen += page["events"]
        query = f"?limit=2&after={page['next']}" if page["next"] else ""
    assert [one["event_id"] for one in seen] == events[::-1]
    assert [len(one["runs"]) for one in seen] == [0, 1, 0, 1, 0]
    for wanted in ("type=a.b", "trigger=trg_test"):
        some = (await gateway.call("GET", f"{API}?{wanted}")).body["events"]
        assert [one["event_id"] for one in some] == [events[3], events[1]]
    assert (await gateway.call("GET", f"{API}?trigger=trg_other")).body == {"events": [], "next": None}
    for since in ("1h", "62342898m", "0001-01-01", "2h"):
        assert len((await gateway.call("GET", f"{API}?since={since}")).body["events"]) == 5
    assert (await gateway.call("GET", f"{API}?since=9999-12-31")).body["events"] == []
    assert set(seen[1]) == {"event_id", "accepted_at", "taken_at", "type", "idempotency_key", "runs"}


async def test_what_is_taken_is_told_live_and_a_stream_goes_on_where_it_was_cut(gateway: Gateway) -> None:
    before = await take(gateway, event_id(-60))
    async with asyncio.timeout(60), follow(gateway, "?since=5m") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        stream = told(response)
        assert (await anext(stream))[1]["event_id"] == before
        await take(gateway, event_id(), project="pj_other")
        made = await take(gateway, event_id(), makes_run=True)
        last, event = await anext(stream)
        assert (event["event_id"], event["type"], event["runs"][0]["state"]) == (made, "a.b", "failed")
    missed = await take(gateway, event_id())
    async with asyncio.timeout(60), follow(gateway, **{"Last-Event-ID": last}) as response:
        assert (await anext(told(response)))[1]["event_id"] == missed


async def test_a_stream_that_was_cut_before_anything_came_goes_on_where_it_began(gateway: Gateway) -> None:
    async with asyncio.timeout(60), follow(gateway) as response:
        begun = (await response.content.readline()).decode().strip().removeprefix("id: ")
    # Told by the clock by which the stream began: it may be ahead by half of what its reading took.
    missed = await take(gateway, new_event_id(int(gateway.door.now().timestamp() * 1000)))
    async with (
        asyncio.timeout(60),
        follow(gateway, **{"Last-Event-ID": begun}) as response,
    ):
        assert (await anext(told(response)))[1]["event_id"] == missed


async def test_a_filtered_stream_tells_what_passes_alone(gateway: Gateway) -> None:
    async with asyncio.timeout(60), follow(gateway, "?trigger=trg_test&since=5m") as response:
        await take(gateway, event_id(-3))
        made = await take(gateway, event_id(-2), makes_run=True)
        assert (await anext(told(response)))[1]["event_id"] == made


@pytest.mark.parametrize(
    "last", ["x", "1:1:.evt_1", "2:1:.evt_01M8P2071FKV3XNBJP0ED0H7HS", "1:9:5,3.evt_01M8P2071FKV3XNBJP0ED0H7HS",
             "0:1:.evt_01M8P2071FKV3XNBJP0ED0H7HS", "1:9999999999999999999:.evt_01M8P2071FKV3XNBJP0ED0H7HS"],
)  # fmt: skip
async def test_a_mark_that_was_never_given_is_refused(gateway: Gateway, last: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
    answer = await gateway.call("GET", API, headers=headers)
    assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")


async def test_parameters_that_make_no_sense_are_refused_and_so_is_who_is_unknown(gateway: Gateway) -> None:
    for query in ("?after=evt_1", "?since=yesterday", "?limit=0"):
        assert (await gateway.call("GET", f"{API}{query}")).code == "E_INVALID_PARAMETER"
    assert (await gateway.call("GET", API, token="a44_nobody")).status == 401
