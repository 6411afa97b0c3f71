"""Every role of a running service is scraped, and what happens to a run moves the values that should."""

import aiohttp
import pytest

from ops.settings import ROLES
from tests.support.crash_site import PATIENCE, Site
from tests.support.scraping import Samples, sample, scrape
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka, pytest.mark.timeout(300)]

EVENTS = "a44.events.v1"


async def scraped(site: Site) -> dict[str, Samples]:
    await site.all_ready()
    return {role: await scrape(site.stack.processes[role].told["metrics"]) for role in ROLES}


async def moved(site: Site, before: dict[str, Samples], role: str, name: str, **labels: str) -> float:
    """By how much, once it has moved: a role counts when it hears that a thing is done, and the log may tell sooner."""
    begun, by = before[role].get(sample(name, **labels), 0.0), 0.0

    async def has() -> bool:
        nonlocal by
        by = await site.measure(role, name, **labels) - begun
        return by > 0

    await until(has, f"{name} of {role} moves", PATIENCE)
    return by


async def test_each_role_tells_that_it_is_up_and_what_it_runs(site: Site) -> None:
    for role, samples in (await scraped(site)).items():
        assert samples[sample("role_up", role=role)] == 1
        assert [value for (name, _), value in samples.items() if name == "build_info"] == [1]
        assert samples[sample("process_resident_memory_bytes")] > 0
        assert sample("lease_reclaim_total") in samples


async def test_an_event_moves_the_counters_of_every_role_on_its_way(site: Site) -> None:
    before = await scraped(site)
    assert (await site.send("counted")).status == 202
    assert (await site.send("counted")).status == 200
    (run_id,) = await site.runs_when_made("counted")
    await site.succeeded(run_id)
    assert await moved(site, before, "gateway", "door_answers_total", outcome="created") == 1
    assert await moved(site, before, "gateway", "door_answers_total", outcome="deduplicated") == 1
    assert await moved(site, before, "ingest", "events_taken_total") == 1
    assert await moved(site, before, "ingest", "event_runs_total") == 1
    assert await moved(site, before, "executor", "runs_claimed_total") == 1
    assert await moved(site, before, "executor", "runs_ended_total", state="succeeded") == 1

    async def published() -> bool:
        return await moved(site, before, "relay", "relay_published_total") >= 2  # the event, and the run's end

    await until(published, "the end of the run was published", PATIENCE)


async def test_gauges_tell_of_the_outbox_and_of_lag(site: Site) -> None:
    before = await scraped(site)
    assert sample("outbox_lag_rows") in before["relay"]
    assert before["relay"][sample("outbox_horizon_age_seconds")] >= 0
    site.produce("lagging")
    await site.succeeded((await site.runs_when_made("lagging"))[0])

    async def caught_up() -> bool:
        samples = await scrape(site.stack.processes["ingest"].told["metrics"])
        lags = [
            value for (name, labels), value in samples.items() if name == "consumer_lag" and ("topic", EVENTS) in labels
        ]
        return bool(lags) and set(lags) == {0.0}

    await until(caught_up, "ingest has nothing left to read", PATIENCE)


async def test_a_timer_and_a_lost_executor_are_counted_by_the_scheduler(site: Site) -> None:
    before = await scraped(site)
    asleep = (await site.run("wf_sleeper", "counted-nap")).document["run_id"]
    await site.succeeded(asleep)
    assert await moved(site, before, "scheduler", "timers_woken_total") >= 1
    held = (await site.run("wf_held", "counted-loss")).document["run_id"]
    await until(lambda: site.effects("counted-loss") == ["held"], "the step has begun", PATIENCE)
    await site.stack.processes["executor"].kill()
    await site.start("executor")
    site.let_go("counted-loss")
    await site.succeeded(held)
    assert await moved(site, before, "scheduler", "lease_reclaim_total") == 1


async def test_a_webhook_that_is_refused_is_counted_by_its_code(site: Site) -> None:
    before = await scraped(site)
    signed_by_nobody = {"A44-Timestamp": "1", "A44-Signature": "0" * 64}
    async with (
        aiohttp.ClientSession(site.stack.url, headers=signed_by_nobody) as session,
        session.post("/v1/dev/trg_of_nobody", json={}) as answer,
    ):
        assert answer.status == 401
    assert await moved(site, before, "gateway", "webhook_rejected_total", code="E_SIGNATURE") == 1
