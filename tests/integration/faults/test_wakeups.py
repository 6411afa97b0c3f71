"""Listening heals by itself: a connection that is dropped, half open, or answered by another session (case E13)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from processors.adapters.postgres import wakeups
from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.wakeups import Channel, Notifier, listen
from processors.ports.measures import Measures
from schemas.errors import Unavailable
from tests.integration.executor.works import Works
from tests.integration.log.lab import Lab
from tests.support.waiting import until
from tests.support.wires import Wire, wire_to


@pytest_asyncio.fixture
async def wire(lab: Lab) -> AsyncIterator[Wire]:
    async with wire_to(lab.dsn) as opened:
        yield opened


PATIENT = 15.0  # a Postgres that is only slow is not taken for one that is gone


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"PROOF_SECONDS": 0.2, "ANSWER_SECONDS": PATIENT, "RETRY_SECONDS": 0.2}.items():
        monkeypatch.setattr(wakeups, name, seconds)


class Listener:
    def __init__(self) -> None:
        self.heard = 0
        self.measures = Measures()

    def hear(self) -> None:
        self.heard += 1


@asynccontextmanager
async def listening(dsn: str) -> AsyncIterator[Listener]:
    """Once it listens, with the wake-up for what it may have missed behind it."""
    listener, stop = Listener(), asyncio.Event()
    task = asyncio.create_task(listen(dsn, {Channel.GRANTED: listener.hear}, stop, listener.measures))
    await until(lambda: listener.heard == 1, "the first wake-up")
    yield listener
    stop.set()
    await asyncio.wait_for(task, 20)


async def hears_of(lab: Lab, listener: Listener) -> None:
    before = listener.measures.value("wakeups_total", "notify")
    notifier = Notifier(lab.dsn)
    notifier.wake(Channel.GRANTED)
    await until(lambda: listener.measures.value("wakeups_total", "notify") == before + 1, "a notification")
    await notifier.aclose()


async def test_e13_a_dropped_connection_is_made_anew_and_what_was_missed_is_looked_for(lab: Lab, wire: Wire) -> None:
    async with listening(wire.dsn) as listener:
        await hears_of(lab, listener)
        heard = listener.heard
        wire.cut()
        await until(lambda: listener.heard == heard + 1, "the catch-up after the reconnect")
        assert listener.measures.value("wakeups_total", "notify") == 1  # the catch-up is no notification
        await hears_of(lab, listener)


async def test_a_notification_survives_the_end_of_its_connection(lab: Lab, wire: Wire) -> None:
    """After a restart of Postgres the first wake-up finds a dead connection, and goes over a new one."""
    async with listening(lab.dsn) as listener:
        notifier = Notifier(wire.dsn)
        for heard in (1, 2):
            notifier.wake(Channel.GRANTED)
            await until(lambda told=heard: listener.measures.value("wakeups_total", "notify") == told, "a wake-up")
            wire.cut()
        await notifier.aclose()


async def test_e13_a_half_open_connection_is_noticed_and_made_anew(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells its end: only the missing answer to a question does."""
    monkeypatch.setattr(wakeups, "ANSWER_SECONDS", 2.0)
    async with listening(wire.dsn) as listener:
        heard, accepted = listener.heard, wire.accepted
        wire.freeze()
        await until(lambda: wire.accepted > accepted, "the reconnect")
        monkeypatch.setattr(wakeups, "ANSWER_SECONDS", PATIENT)
        await until(lambda: listener.heard > heard, "the catch-up after it")
        await hears_of(lab, listener)


async def test_e13_a_session_that_does_not_listen_is_not_taken_for_one_that_does(lab: Lab) -> None:
    """A pooler that shares connections puts another session behind ours: no notification would ever come."""
    conn = await connect(lab.dsn, "listen")
    async with conn:
        with pytest.raises(Unavailable, match="a44_granted"):
            await wakeups._prove(conn, {Channel.GRANTED: lambda: None})
        await conn.execute("listen a44_granted")
        await wakeups._prove(conn, {Channel.GRANTED: lambda: None})


async def test_e13_silence_alone_breaks_nothing(lab: Lab, wire: Wire) -> None:
    with capture_logs() as logs:
        async with listening(wire.dsn) as listener:
            accepted = wire.accepted
            backend = await lab.backend("a44-listen")
            asked = "select state_change from pg_stat_activity where pid = %s"
            before = await lab.value(asked, backend)

            async def was_proved() -> bool:
                return bool(await lab.value(asked, backend) > before)

            await until(was_proved, "a proof")
            await hears_of(lab, listener)
            assert wire.accepted == accepted
    assert not [line for line in logs if line["event"] == "listen_lost"]


async def test_stopping_waits_for_no_server_that_is_silent(lab: Lab, wire: Wire) -> None:
    async with listening(wire.dsn):
        wire.freeze()


async def test_e13_runs_that_nobody_told_of_are_counted_as_found_by_the_poll(lab: Lab) -> None:
    works, measures = Works(lab), Measures()
    await lab.queue()
    await works.executor(lease=3.0, measures=measures)  # which looks twice a second
    await works.make(lab.run())  # with a command
    await works.ended(1)
    before = measures.value("wakeups_total", "poll")
    await lab.make([lab.run()])
    await works.ended(2)
    assert measures.value("wakeups_total", "poll") == before + 1
    await works.aclose()
