"""An executor is killed at each of its places: steps that were committed stay done, a step in flight is done again."""

import pytest

from tests.support.crash_site import PATIENCE, Site, attempts
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.kafka, pytest.mark.timeout(300)]


async def falls_with_a_run(site: Site, point: str, key: str) -> str:
    """The run during which the executor died and was started again."""
    site.arm("executor", point)
    run_id: str = (await site.run("wf_pair", key)).document["run_id"]
    await site.death("executor")
    await site.start("executor")
    return run_id


async def is_one_run(site: Site, workflow: str, key: str, run_id: str) -> None:
    """The key stands for this run, there is no other, and its end was told once."""
    again = await site.run(workflow, key)
    assert (again.status, again.document["run_id"]) == (200, run_id)
    assert await site.runs_of(key) == [run_id]
    assert await site.ends_told(run_id) == 1


async def test_after_claim(site: Site) -> None:
    before = await site.measure("scheduler", "lease_reclaim_total")
    run_id = await falls_with_a_run(site, "after_claim", "claim")
    document = await site.succeeded(run_id)
    assert site.effects("claim") == ["first", "second"]
    # Whether a first attempt had begun beside its body cannot be known: it counts as lost, and no effect was.
    assert attempts(document) == [("first", 1, "lost"), ("first", 2, "succeeded"), ("second", 1, "succeeded")]
    assert await site.measure("scheduler", "lease_reclaim_total") == before + 1
    await is_one_run(site, "wf_pair", "claim", run_id)


async def test_after_step_before_append(site: Site) -> None:
    run_id = await falls_with_a_run(site, "after_step_before_append", "step")
    document = await site.succeeded(run_id)
    assert site.effects("step") == ["first", "first", "second"]
    assert len(site.keys_of_steps("step", "first")) == 1
    assert attempts(document) == [("first", 1, "lost"), ("first", 2, "succeeded"), ("second", 1, "succeeded")]
    await is_one_run(site, "wf_pair", "step", run_id)


async def test_after_append_before_next(site: Site) -> None:
    run_id = await falls_with_a_run(site, "after_append_before_next", "append")
    document = await site.succeeded(run_id)
    assert site.effects("append") == ["first", "second"]
    assert attempts(document) == [("first", 1, "succeeded"), ("second", 1, "lost"), ("second", 2, "succeeded")]
    await is_one_run(site, "wf_pair", "append", run_id)


async def test_after_statements_before_commit_of_an_executor(site: Site) -> None:
    run_id = (await site.run("wf_held", "statements")).document["run_id"]
    await until(lambda: site.effects("statements") == ["held"], "the step has begun", PATIENCE)
    site.arm("executor", "after_statements_before_commit")
    site.let_go("statements")
    await site.death("executor")
    await site.start("executor")
    document = await site.succeeded(run_id)
    assert site.effects("statements") == ["held", "held", "after"]
    assert len(site.keys_of_steps("statements", "held")) == 1
    assert attempts(document) == [("held", 1, "lost"), ("held", 2, "succeeded"), ("after", 1, "succeeded")]
    await is_one_run(site, "wf_held", "statements", run_id)


async def test_after_release_before_goodbye(site: Site) -> None:
    before = await site.measure("scheduler", "lease_reclaim_total")
    run_id = (await site.run("wf_sleeper", "released")).document["run_id"]
    held_id = (await site.run("wf_held", "given-back")).document["run_id"]
    await until(lambda: site.effects("given-back") == ["held"], "the step has begun", PATIENCE)
    site.arm("executor", "after_release_before_goodbye")
    site.let_go("given-back")
    await site.stop("executor")
    await site.death("executor")
    await site.start("executor")
    for one in (run_id, held_id):
        document = await site.succeeded(one)
        assert [status for _, _, status in attempts(document)] == ["succeeded"] * len(attempts(document))
        assert await site.ends_told(one) == 1
    assert site.effects("given-back") == ["held", "after"]
    assert await site.measure("scheduler", "lease_reclaim_total") == before
