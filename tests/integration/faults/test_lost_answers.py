"""COMMIT was sent and the connection dies before its answer: the writer finds out what became of it, both ways."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from processors.adapters.postgres.connections import connect, cut
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.wakeups import Notifier
from processors.ports.door import Outcome
from processors.ports.journal import Batch
from schemas.errors import Unavailable
from tests.integration.faults.arrivals import harvest_of, webhook
from tests.integration.faults.others import transaction
from tests.integration.log.lab import DEAD_LETTERS, EVENTS, Lab, end_of, entry_of, manual_acceptance
from tests.support.waiting import until
from tests.support.wires import Wire, wire_to

OUTCOMES = pytest.mark.parametrize("arrives", [True, False], ids=["committed", "never_arrived"])


@pytest_asyncio.fixture
async def wire(lab: Lab) -> AsyncIterator[Wire]:
    async with wire_to(lab.dsn) as opened:
        yield opened


def lose_the_next_commit(wire: Wire, *, arrives: bool) -> asyncio.Event:
    """Its answer is lost, or it is lost itself; then the connection breaks. The event tells that it was met."""
    met = asyncio.Event()

    def watch(data: bytes) -> bool:
        if b"commit" not in data or met.is_set():
            return True
        met.set()
        wire.is_mute = True
        asyncio.get_running_loop().call_later(0.3, give_way)
        return arrives

    def give_way() -> None:
        wire.cut()
        wire.is_mute = False

    wire.on_request = watch
    return met


@OUTCOMES
async def test_a_door_finds_out_by_the_key(lab: Lab, wire: Wire, *, arrives: bool) -> None:
    await lab.queue()
    notifier = Notifier(lab.dsn)
    door = PostgresDoor(wire.dsn, EVENTS, notifier, lambda _: None)
    await door.open()
    met = lose_the_next_commit(wire, arrives=arrives)
    run, hook = lab.run(), webhook("order-1")
    answers = await asyncio.gather(door.accept(manual_acceptance(run)), door.accept(hook))
    assert met.is_set()
    assert [answer.outcome for answer in answers] == [Outcome.CREATED, Outcome.CREATED]
    assert [answer.run_id for answer in answers] == [run.run_id, hook.run_id]
    assert await lab.column("select run_id from automation.live_runs") == [run.run_id]
    repeated = await door.accept(webhook("order-1"))
    assert (repeated.outcome, repeated.run_id) == (Outcome.DUPLICATE, hook.run_id)
    events = {bytes(value) for value in await lab.column("select value from automation.outbox")}
    assert events == {hook.envelope}
    await door.aclose()
    await notifier.aclose()


@OUTCOMES
async def test_a_journal_finds_out_by_epoch_and_batch(lab: Lab, wire: Wire, *, arrives: bool) -> None:
    await lab.queue(limit=1)
    await lab.make([lab.run() for _ in range(2)])
    journal = PostgresJournal(wire.dsn, "executor-1", 30.0, DEAD_LETTERS)
    await journal.open()
    (claim,) = await lab.claim(journal)
    met = lose_the_next_commit(wire, arrives=arrives)
    claims = await journal.commit(Batch(entries=[entry_of(claim, 1)], ends=[end_of(claim)], room=1))
    assert met.is_set()
    assert len({one.run_id for one in claims} - {claim.run_id}) == 1  # the slot went on to the next, in this session
    assert await lab.column("select seq from automation.step_attempts") == [1]
    assert await lab.column("select run_id from automation.runs_ended") == [claim.run_id]
    assert await lab.value("select epoch from automation.sessions") == 2
    (left,) = [one for one in claims if one.run_id != claim.run_id]
    await journal.commit(Batch(entries=[entry_of(left, 1)], ends=[end_of(left)]))
    assert await lab.states() == {"succeeded": 2}
    await journal.aclose()


@OUTCOMES
async def test_ingest_finds_out_by_the_inbox(lab: Lab, wire: Wire, *, arrives: bool) -> None:
    await lab.queue()
    log = PostgresIngestLog(wire.dsn, DEAD_LETTERS, 86_400.0)
    await log.open()
    await log.positions(EVENTS, "topic-1", [0])
    met = lose_the_next_commit(wire, arrives=arrives)
    runs = [lab.run() for _ in range(20)]
    with pytest.raises(Unavailable):
        await log.commit(harvest_of(runs))
    assert met.is_set()
    await log.positions(EVENTS, "topic-1", [0])
    await log.commit(harvest_of(runs))  # the consumer comes again with the same records
    assert sorted(await lab.column("select run_id from automation.live_runs")) == sorted(run.run_id for run in runs)
    assert await lab.value("select count(*) from automation.dead_letters") == 0
    assert await lab.value("select next_offset from automation.ingest_progress") == 20
    await log.aclose()


async def test_a_commit_that_is_still_under_way_when_its_connection_dies_is_waited_for(lab: Lab, wire: Wire) -> None:
    """The old transaction waits for a lock and commits only after the new connection has asked."""
    await lab.queue()
    notifier = Notifier(lab.dsn)
    door = PostgresDoor(wire.dsn, EVENTS, notifier, lambda _: None, patience=20)
    await door.open()
    first = await door.accept(manual_acceptance(lab.run()))
    async with transaction(lab, "select from automation.queues for update"):
        run = lab.run()
        accepting = asyncio.ensure_future(door.accept(manual_acceptance(run)))
        await lab.waits_for_lock("a44-door")
        wire.cut()
        await lab.waits_for_lock("a44-door", 2)  # the old one's server process does not know yet
    answer = await accepting
    assert (answer.outcome, answer.run_id) == (Outcome.CREATED, run.run_id)
    made = await lab.column("select run_id from automation.live_runs")
    assert sorted(made) == sorted([str(first.run_id), run.run_id])
    await door.aclose()
    await notifier.aclose()


async def test_a_door_whose_server_falls_silent_answers_in_time_and_loses_nothing(lab: Lab, wire: Wire) -> None:
    """Half open: what is sent goes nowhere and no end is told. The caller hears in time, the key stays the same."""
    notifier = Notifier(lab.dsn)
    door = PostgresDoor(wire.dsn, EVENTS, notifier, lambda _: None, patience=0.5)
    await door.open()
    wire.freeze()
    item = webhook("order-1")
    with pytest.raises(Unavailable, match="send it again with the same key"):
        async with asyncio.timeout(10):
            await door.accept(item)
    wire.cut()  # as TCP does by itself after a while

    async def is_written() -> bool:
        try:
            return (await door.accept(item)).outcome is Outcome.CREATED
        except Unavailable:
            return False

    await until(is_written, "the door to be back")
    assert {bytes(value) for value in await lab.column("select value from automation.outbox")} == {item.envelope}
    await door.aclose()
    await notifier.aclose()


async def test_a_connection_that_is_closed_already_can_be_cut(lab: Lab) -> None:
    conn = await connect(lab.dsn, "door")
    await conn.close()
    cut(conn)
    assert conn.closed
