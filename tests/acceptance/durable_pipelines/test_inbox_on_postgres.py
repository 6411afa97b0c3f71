"""The consumer's inbox over psycopg: one commit with the effect, and one of two that race."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from anthares44.automation import Inbox
from tests.acceptance.durable_pipelines.relayops import RelayOps
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
DUPLICATE = {"applied": False, "reason": "duplicate_event"}


@pytest.fixture
def connection(relayops: RelayOps) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(relayops.stack.project_dsn)) as opened:
        opened.execute("create table if not exists applied (event text)")
        Inbox(opened, consumer="any").create_table()
        yield opened


def count(connection: psycopg.Connection, event: str) -> int:
    row = connection.execute("select count(*) from applied where event = %s", (event,)).fetchone()
    connection.rollback()
    assert row is not None
    return int(row[0])


def note(connection: psycopg.Connection, event: dict[str, str]) -> None:
    connection.execute("insert into applied values (%s)", (event["id"],))


async def test_the_second_delivery_is_a_duplicate(connection: psycopg.Connection) -> None:
    event = {"id": "rev_PG_1"}
    inbox = Inbox(connection, consumer="board")
    assert inbox.handle(event, lambda told: note(connection, told)) == {"applied": True}
    assert inbox.handle(event, lambda told: note(connection, told)) == DUPLICATE
    assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    assert Inbox(connection, consumer="billing").handle(event, lambda _: None) == {"applied": True}
    assert count(connection, "rev_PG_1") == 1


async def test_an_apply_that_fails_leaves_nothing_in_the_database(connection: psycopg.Connection) -> None:
    event = {"id": "rev_PG_2"}
    inbox = Inbox(connection, consumer="board")

    def breaks(told: dict[str, str]) -> None:
        note(connection, told)
        connection.execute("select 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        inbox.handle(event, breaks)
    assert count(connection, "rev_PG_2") == 0
    assert inbox.handle(event, lambda told: note(connection, told)) == {"applied": True}


@pytest.mark.parametrize("first_commits", [True, False])
async def test_of_two_that_race_the_second_waits_for_the_first(
    relayops: RelayOps, connection: psycopg.Connection, first_commits: bool
) -> None:
    """It is told of a duplicate where the first one commits, and applies the event itself where that fails."""
    event = {"id": f"rev_PG_race_{first_commits}"}
    inside, go_on = threading.Event(), threading.Event()

    def slowly(told: dict[str, str]) -> None:
        note(connection, told)
        inside.set()
        assert go_on.wait(30)
        if not first_commits:
            raise RuntimeError("in the middle")

    def second() -> object:
        assert inside.wait(30)
        with closing(psycopg.connect(relayops.stack.project_dsn)) as other:
            return Inbox(other, consumer="board").handle(event, lambda told: note(other, told))

    first = asyncio.create_task(asyncio.to_thread(Inbox(connection, consumer="board").handle, event, slowly))
    racing = asyncio.create_task(asyncio.to_thread(second))
    await _one_waits_for_a_lock(relayops)
    go_on.set()
    if first_commits:
        assert await first == {"applied": True}
        assert await racing == DUPLICATE
    else:
        with pytest.raises(RuntimeError):
            await first
        assert await racing == {"applied": True}
    assert count(connection, event["id"]) == 1


async def test_a_connection_in_autocommit_is_refused(relayops: RelayOps) -> None:
    with (
        closing(psycopg.connect(relayops.stack.project_dsn, autocommit=True)) as opened,
        pytest.raises(ValueError, match="autocommit"),
    ):
        Inbox(opened, consumer="board").handle({"id": "rev_PG_3"}, lambda _: None)


async def _one_waits_for_a_lock(relayops: RelayOps) -> None:
    waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with await psycopg.AsyncConnection.connect(relayops.stack.project_dsn, autocommit=True) as watcher:

        async def is_waiting() -> bool:
            return (await (await watcher.execute(waits)).fetchone()) is not None

        await until(is_waiting, "the second handler waits for the first", 30)
