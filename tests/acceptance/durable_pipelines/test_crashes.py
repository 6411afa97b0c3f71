"""Workers, doors and relays die at named places: extraction may run twice, the review is opened once."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from schemas.errors import Unavailable
from tests.acceptance.durable_pipelines.relayops import PATIENCE, RelayOps
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
DUPLICATE = {"applied": False, "reason": "duplicate_event"}


async def test_the_opening_incident_ends_with_one_review(relayops: RelayOps) -> None:
    """The worker dies after the extraction, before anybody knows of it; the next one extracts again."""
    document = "invoice-incident"
    async with relayops.killed_at("executor", "after_step_before_append"):
        await relayops.tenant.send(document, total=100)
    await relayops.stack.processes["executor"].start()
    (run,) = await relayops.tenant.ended(document)
    assert (run["state"], run["result"]) == ("succeeded", {"document_id": document, "total": 100})
    assert relayops.extractions(document) == 2  # at least once
    extracts = [(row["attempt"], row["status"]) for row in run["attempts"] if row["step_id"] == "extract"]
    assert extracts == [(1, "lost"), (2, "succeeded")]
    events = await relayops.run_events(run["run_id"])
    assert [event.state for event in events] == ["succeeded"]
    assert [relayops.board.handle(event) for event in events] == [{"applied": True}]
    assert relayops.board.reviews(run["run_id"]) == 1  # the effect, once


async def test_a_record_that_is_committed_is_not_made_again(relayops: RelayOps) -> None:
    """The exercise in the middle: the worker dies when the result is in the log and nobody has acted on it."""
    document = "invoice-committed"
    async with relayops.killed_at("executor", "after_append_before_next"):
        run_id = await relayops.tenant.run(document, total=7)
    assert relayops.validations(document) == 0
    await relayops.stack.processes["executor"].start()
    (run,) = await relayops.tenant.ended(document)
    assert run["state"] == "succeeded"
    assert (relayops.extractions(document), relayops.validations(document)) == (1, 1)
    (event,) = await relayops.run_events(run_id)
    assert relayops.board.handle(event) == {"applied": True}
    assert relayops.board.reviews(run_id) == 1


async def test_a_poll_that_was_committed_and_not_acknowledged_makes_no_second_run(relayops: RelayOps) -> None:
    document = "invoice-redelivered"
    async with relayops.killed_at("ingest", "after_commit_before_ack"):
        await relayops.tenant.send(document)
    await relayops.stack.processes["ingest"].start()
    (run,) = await relayops.tenant.ended(document)
    assert run["state"] == "succeeded"
    await relayops.tenant.send("invoice-behind-it")  # read behind the redelivery
    await relayops.tenant.ended("invoice-behind-it")
    assert len(await relayops.tenant.listed(document)) == 1
    assert relayops.extractions(document) == 1


async def test_a_second_publication_by_the_relay_is_absorbed_by_the_inbox(relayops: RelayOps) -> None:
    document = "invoice-republished"
    async with relayops.killed_at("relay", "after_publish_before_mark"):
        run_id = await relayops.tenant.run(document)  # by hand: the run's end is all that there is to publish
    await relayops.stack.processes["relay"].start()
    first, second = await relayops.run_events(run_id, count=2)
    assert first == second
    assert relayops.board.handle(first) == {"applied": True}
    assert relayops.board.handle(second) == DUPLICATE
    assert relayops.board.reviews(run_id) == 1


async def test_what_the_door_has_committed_is_published_though_the_door_died(relayops: RelayOps) -> None:
    """The outbox where the dual write fails: the sender was not answered, and the event is there all the same."""
    document = "invoice-unanswered"
    async with relayops.killed_at("gateway", "after_db_write_before_publish"):
        with pytest.raises(Unavailable):
            await relayops.tenant.send(document, total=3)
    await relayops.stack.processes["gateway"].start()
    (run,) = await relayops.tenant.ended(document)
    assert (run["state"], relayops.extractions(document)) == ("succeeded", 1)
    again = await relayops.tenant.send(document, total=3)  # a sender that heard nothing sends again
    assert (again.status, again.document["status"]) == (200, "deduplicated")
    assert len(await relayops.tenant.listed(document)) == 1


async def test_a_door_killed_between_statements_and_commit_has_taken_nothing(relayops: RelayOps) -> None:
    document = "invoice-half-taken"
    keys = "select from automation.idempotency_keys where idempotency_key like %s"
    before = await relayops.rows("select count(*) from automation.outbox")
    async with relayops.killed_at("gateway", "after_statements_before_commit"):
        with pytest.raises(Unavailable):
            await relayops.tenant.send(document)
    await relayops.relay_is_done()
    assert await relayops.rows(keys, f"%{document}%") == []
    assert await relayops.rows("select count(*) from automation.outbox") == before
    await relayops.stack.processes["gateway"].start()
    assert (await relayops.tenant.send(document)).status == 202  # not a duplicate: nothing was there
    (run,) = await relayops.tenant.ended(document)
    assert (run["state"], relayops.extractions(document)) == ("succeeded", 1)


async def test_ingest_killed_between_statements_and_commit_has_made_nothing(relayops: RelayOps) -> None:
    document = "invoice-half-made"
    progress = "select partition, next_offset from automation.ingest_progress order by partition"
    before = await relayops.rows(progress)
    async with relayops.killed_at("ingest", "after_statements_before_commit"):
        sent = await relayops.tenant.send(document)
    seen = "select from automation.inbox where event_id like '%%/' || %s"
    assert await relayops.rows(seen, sent.document["event_id"]) == []
    assert await relayops.tenant.listed(document) == []
    assert await relayops.rows(progress) == before
    await relayops.stack.processes["ingest"].start()
    (run,) = await relayops.tenant.ended(document)
    assert (run["state"], relayops.extractions(document)) == ("succeeded", 1)
    assert len(await relayops.rows(seen, sent.document["event_id"])) == 1


WHERE_IT_STANDS = """
select (select count(*) from automation.live_runs where run_id = one.id),
       (select count(*) from automation.runs_ended where run_id = one.id),
       (select count(*) from automation.step_attempts where run_id = one.id and status = 'ended'),
       (select count(*) from automation.outbox where partition_key = one.id)
  from (values (%s)) as one (id)
"""
LIVE, ENDED = (1, 0, 0, 0), (0, 1, 1, 1)


@pytest.mark.timeout(900)
async def test_an_executor_killed_between_statements_and_commit_has_done_all_of_a_batch_or_nothing(
    relayops: RelayOps,
) -> None:
    """At its first commit, the next life at its second, and so on: claim, records, end. Each death leaves the run live
    with no part of an end, until a life is long enough; then it is done, once.
    """
    document, executor, deaths = "invoice-half-done", relayops.stack.processes["executor"], 0
    run_id = ""

    async def stands() -> Sequence[tuple[int, ...]]:
        return await relayops.rows(WHERE_IT_STANDS, run_id)

    async def told() -> bool:
        return not executor.is_running or await stands() == [ENDED]

    await executor.stop()
    run_id = await relayops.tenant.run(document, "wf_patient_document", total=5)
    while await stands() == [LIVE]:
        with suppress(Unavailable):  # it may die before it is ready
            point = f"after_statements_before_commit:{deaths + 1}"
            await executor.start({"A44_CRASH_POINT": point, "A44_LEASE_SECONDS": "30"})  # few commits of an idle one
        await until(told, f"the executor dies at commit {deaths + 1}, or the run ends", PATIENCE)
        assert await stands() in ([LIVE], [ENDED]), f"at commit {deaths + 1}"
        deaths += await stands() == [LIVE]
    assert deaths >= 3  # claim, records, end
    (run,) = await relayops.tenant.ended(document)
    assert (run["state"], run["result"]) == ("succeeded", {"document_id": document, "total": 5})
    done = [row["step_id"] for row in run["attempts"] if row["status"] == "succeeded"]
    assert done == ["extract", "validate"]
    (event,) = await relayops.run_events(run_id)
    assert relayops.board.handle(event) == {"applied": True}
    await executor.stop()  # in its armed life it would die of the next test's work
