"""A scheduler is killed when it has decided and told nobody: the runs are found all the same, and once."""

import pytest

from tests.support.crash_site import PATIENCE, Site, attempts
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka, pytest.mark.timeout(300)]

FENCE = "select fence from automation.live_runs where run_id = %s"


async def loses_its_executor(site: Site, key: str, point: str) -> str:
    """A run whose executor was killed in its first step, and the scheduler that noticed after it."""
    run_id: str = (await site.run("wf_held", key)).document["run_id"]
    await until(lambda: site.effects(key) == ["held"], "the step has begun", PATIENCE)
    site.arm("scheduler", point)
    await site.stack.processes["executor"].kill()
    await site.death("scheduler")
    site.let_go(key)
    return run_id


async def is_done_again_once(site: Site, key: str, run_id: str) -> None:
    document = await site.succeeded(run_id)
    assert attempts(document) == [("held", 1, "lost"), ("held", 2, "succeeded"), ("after", 1, "succeeded")]
    assert site.effects(key) == ["held", "held", "after"]
    assert len(site.keys_of_steps(key, "held")) == 1
    assert await site.ends_told(run_id) == 1


async def test_after_regrant_before_hint(site: Site) -> None:
    run_id = await loses_its_executor(site, "regrant", "after_regrant_before_hint")
    assert await site.ask(FENCE, run_id) == [(2,)]
    await site.start("executor")
    await is_done_again_once(site, "regrant", run_id)  # without a scheduler
    await site.start("scheduler")
    await site.ready("scheduler")


async def test_after_statements_before_commit_of_a_scheduler(site: Site) -> None:
    run_id = await loses_its_executor(site, "reap", "after_statements_before_commit")
    assert await site.ask(FENCE, run_id) == [(1,)]
    await site.start("executor")
    await site.start("scheduler")
    await is_done_again_once(site, "reap", run_id)
    await site.ready("scheduler")


async def test_after_wake_before_grant(site: Site) -> None:
    site.arm("scheduler", "after_wake_before_grant")
    run_id = (await site.run("wf_sleeper", "woken")).document["run_id"]
    await site.death("scheduler")
    assert site.effects("woken") == []
    assert (await site.show(run_id))["state"] == "pending"
    await site.start("scheduler")
    document = await site.succeeded(run_id)
    await site.ready("scheduler")
    assert site.effects("woken") == ["awake"]
    assert attempts(document) == [("awake", 1, "succeeded")]
    assert [row["status"] for row in document["attempts"] if row["kind"] == "sleep"] == ["opened", "succeeded"]
    assert await site.ends_told(run_id) == 1
