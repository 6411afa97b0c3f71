"""A scheduler is killed when it has decided and told nobody: the runs are found all the same, and once."""

import pytest

from tests.support.crash_site import Site, attempts
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka]

FENCE = "select fence from automation.live_runs where run_id = %s"


async def test_after_regrant_before_hint(site: Site) -> None:
    run_id = (await site.run("wf_held", "regrant")).document["run_id"]
    await until(lambda: site.effects("regrant") == ["held"], "the step has begun", 60)
    site.arm("scheduler", "after_regrant_before_hint")
    await site.stack.processes["executor"].kill()
    await site.death("scheduler")
    assert await site.ask(FENCE, run_id) == [(2,)]
    site.let_go("regrant")
    await site.start("executor")
    document = await site.succeeded(run_id)  # without a scheduler
    await site.start("scheduler")
    await site.ready("scheduler")
    assert attempts(document) == [("held", 1, "lost"), ("held", 2, "succeeded"), ("after", 1, "succeeded")]
    assert site.effects("regrant") == ["held", "held", "after"]
    assert len(site.keys_of_steps("regrant", "held")) == 1
    assert await site.ends_told(run_id) == 1


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
