"""Postgres is stopped at once in the middle of everything and started again: nothing is lost, nothing is twice."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

import pytest
import pytest_asyncio

from ops.embedded.postgres import EmbeddedPostgres
from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.schedule import PostgresSchedule
from processors.adapters.postgres.wakeups import Notifier
from processors.gateway import lookups
from processors.ports.door import Outcome
from processors.ports.journal import Batch
from processors.ports.runs import NewRun
from schemas.errors import Unavailable
from tests.integration.faults.arrivals import harvest_of, webhook
from tests.integration.faults.gateways import open_gateway
from tests.integration.faults.own_postgres import own_log, own_postgres
from tests.integration.log.lab import DEAD_LETTERS, EVENTS, Lab, end_of, entry_of, manual_acceptance, open_lab
from tests.support.waiting import until

# One loop for all: the server's process belongs to the loop in which it was started.
pytestmark = [pytest.mark.timeout(240), pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]
PATIENT = 60.0  # seconds: a start with recovery takes two here, and others use the machine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[EmbeddedPostgres]:
    async with own_postgres() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def dsn(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with own_log(server) as address:
        yield address


async def restart(server: EmbeddedPostgres) -> None:
    await server.stop_immediately()
    await server.start()


async def test_senders_behind_a_door_notice_no_restart_and_keep_their_order(server: EmbeddedPostgres, dsn: str) -> None:
    notifier = Notifier(dsn)
    door = PostgresDoor(dsn, EVENTS, notifier, lambda _: None, patience=PATIENT)
    await door.open()
    stop = asyncio.Event()

    async def send(sender: int) -> list[tuple[bytes | None, str | None]]:
        """One after the other: what was answered before comes before."""
        sent: list[tuple[bytes | None, str | None]] = []
        while not stop.is_set():
            item = webhook(f"{sender}-{len(sent)}", lane=f"lane-{sender}")
            answer = await door.accept(item)
            assert answer.outcome is Outcome.CREATED
            sent.append((item.envelope, answer.run_id))
        return sent

    sending = [asyncio.create_task(send(sender)) for sender in range(10)]
    for _ in range(2):
        await restart(server)
        answer = await door.accept(webhook(f"after-{time.monotonic()}"))
        assert answer.outcome is Outcome.CREATED
    stop.set()
    told = await asyncio.gather(*sending)
    async with open_lab(dsn) as lab:
        for sender, sent in enumerate(told):
            rows = await lab.column(
                "select value from automation.outbox where partition_key = %s order by xid, id", f"lane-{sender}"
            )
            first = list(dict.fromkeys(bytes(value) for value in rows))  # a repetition has the same event in it
            assert first == [envelope for envelope, _ in sent]
        repeated = await asyncio.gather(*(door.accept(webhook(f"{n}-0")) for n in range(10)))
        assert [answer.run_id for answer in repeated] == [sent[0][1] for sent in told]
        assert {answer.outcome for answer in repeated} == {Outcome.DUPLICATE}
    await door.aclose()
    await notifier.aclose()


async def test_a_pipeline_from_door_to_end_goes_through_restarts(server: EmbeddedPostgres, dsn: str) -> None:
    """Runs by hand and by ingest are made, claimed, recorded and ended while Postgres is stopped twice."""
    async with open_lab(dsn) as lab:
        await lab.queue(limit=50)
        by_hand, by_ingest = [lab.run() for _ in range(200)], [lab.run() for _ in range(200)]
        done: Counter[str] = Counter()
        stop = asyncio.Event()
        working = asyncio.create_task(_work(dsn, done, stop))
        granting = asyncio.create_task(_grant(dsn, stop))
        making = asyncio.gather(_by_door(dsn, by_hand), _by_ingest(dsn, by_ingest))
        for many in (20, 150):
            await until(partial(_have_begun, done, many), f"{many} runs to begin", PATIENT)
            await restart(server)
        async with asyncio.timeout(PATIENT):
            await making
    async with open_lab(dsn) as lab:  # the one before went with the server
        await until(lambda: _all_ended(lab, 400), "400 runs to end", PATIENT)
        stop.set()
        await asyncio.gather(working, granting)
        made = [run.run_id for run in by_hand + by_ingest]
        assert sorted(await lab.column("select run_id from automation.runs_ended")) == sorted(made)
        assert sorted(await lab.column("select run_id from automation.step_attempts")) == sorted(made)  # one each
        assert await lab.taken() == 0
        assert await lab.value("select count(*) from automation.dead_letters") == 0


def _have_begun(done: Counter[str], many: int) -> bool:
    return len(done) >= many


async def _all_ended(lab: Lab, many: int) -> bool:
    return bool(await lab.value("select count(*) = %s from automation.runs_ended", many))


async def _by_door(dsn: str, runs: list[NewRun]) -> None:
    notifier = Notifier(dsn)
    door = PostgresDoor(dsn, EVENTS, notifier, lambda _: None, patience=PATIENT)
    for run in runs:
        assert (await door.accept(manual_acceptance(run))).outcome is Outcome.CREATED
    await door.aclose()
    await notifier.aclose()


async def _by_ingest(dsn: str, runs: list[NewRun]) -> None:
    """As the consumer does: what was not taken comes again, from the offset that Postgres knows."""
    log = PostgresIngestLog(dsn, DEAD_LETTERS, 86_400.0)
    offset = 0
    while offset < len(runs):
        try:
            known = await log.positions(EVENTS, "topic-1", [0])
            offset = known.get(0, 0)
            if runs[offset:]:
                await log.commit(harvest_of(runs[offset : offset + 10], offset=offset))
        except Unavailable:
            await asyncio.sleep(0.05)  # the consumer's own pause
    await log.aclose()


async def _work(dsn: str, done: Counter[str], stop: asyncio.Event) -> None:
    """An executor in small: one record a run, then its end."""
    journal = PostgresJournal(dsn, "executor-1", PATIENT, DEAD_LETTERS)
    await journal.open()
    batch = Batch(look_for_granted=True, room=20)
    while not stop.is_set():
        claims = [claim for claim in await journal.commit(batch) if not done[claim.run_id]]
        done.update(claim.run_id for claim in claims)
        entries, ends = [entry_of(claim, 1) for claim in claims], [end_of(claim) for claim in claims]
        batch = Batch(entries=entries, ends=ends, look_for_granted=True, room=20)
        if not claims:
            await asyncio.sleep(0.02)  # nothing wakes this one
    await journal.aclose()


async def _grant(dsn: str, stop: asyncio.Event) -> None:
    schedule = PostgresSchedule(dsn)
    while not stop.is_set():
        with suppress(Unavailable):  # the scheduler looks again too
            await schedule.feed()
        await asyncio.sleep(0.05)
    await schedule.aclose()


async def test_a_gateway_rides_out_a_restart_without_a_failed_request(
    server: EmbeddedPostgres, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "_PATIENCE", PATIENT)  # as for the door and the pool: a start may take long here
    async with open_gateway(dsn, patience=PATIENT) as gateway:
        stop = asyncio.Event()

        async def call(caller: int) -> list[tuple[str, str]]:
            made: list[tuple[str, str]] = []
            while not stop.is_set():
                key = f"{caller}-{len(made)}"
                answer = await gateway.run(key, input={"n": len(made)})
                assert answer.status == 202, answer.body
                made.append((key, answer.body["run_id"]))
            return made

        calling = [asyncio.create_task(call(caller)) for caller in range(8)]
        await restart(server)
        assert (await gateway.run("after")).status == 202
        stop.set()
        made = [one for told in await asyncio.gather(*calling) for one in told]
        for key, run_id in made[::50] + made[-8:]:
            answer = await gateway.run(key, input={"n": int(key.split("-")[1])})
            assert (answer.status, answer.body["run_id"]) == (200, run_id)
        rows = await gateway.rows("select run_id from automation.runs")
        assert len(rows) == len(made) + 1


async def test_a_longer_absence_is_answered_503_in_time_and_ends_by_itself(server: EmbeddedPostgres, dsn: str) -> None:
    async with open_gateway(dsn, patience=0.5) as gateway:
        await gateway.run("before")
        await server.stop_immediately()
        try:
            async with asyncio.timeout(20):
                answers = await asyncio.gather(*(gateway.run(f"away-{n}") for n in range(50)))
                read = await gateway.call("GET", "/v1/automation/runs")
        finally:
            await server.start()
        assert {(answer.status, answer.code, answer.headers["Retry-After"]) for answer in [*answers, read]} == {
            (503, "E_UNAVAILABLE", "1")
        }

        async def is_back() -> bool:
            return (await gateway.run("away-0")).status in {200, 202}

        await until(is_back, "the gateway to accept again", PATIENT)
        assert (await gateway.run("before")).status == 200
