"""The consumer's inbox over sqlite3: an event is applied once for each consumer, with its effect in one commit."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anthares44.automation import Inbox

EVENT = {"id": "rev_01J00000000000000000000000_4", "state": "succeeded"}
DUPLICATE = {"applied": False, "reason": "duplicate_event"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reviews.db"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table reviews (event_id text)")
        Inbox(connection, consumer="any").create_table()
        yield connection


def reviews(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("select count(*) from reviews").fetchone()[0]
    return found


def adds_a_review(connection: sqlite3.Connection) -> Any:
    return lambda event: connection.execute("insert into reviews values (?)", (event["id"],))


def nothing(event: Any) -> None:
    """An effect that needs no table."""


def never(event: Any) -> None:
    pytest.fail(f"{event} was applied again")


def test_the_second_delivery_of_an_event_is_not_applied(database: sqlite3.Connection) -> None:
    inbox = Inbox(database, consumer="review-board")
    assert inbox.handle(EVENT, adds_a_review(database)) == {"applied": True}
    assert inbox.handle(EVENT, never) == DUPLICATE
    assert inbox.handle({**EVENT, "id": "rev_01J00000000000000000000000_5"}, adds_a_review(database))["applied"]
    assert reviews(database) == 2


def test_what_was_applied_is_committed_with_its_record(database: sqlite3.Connection, path: Path) -> None:
    Inbox(database, consumer="review-board").handle(EVENT, adds_a_review(database))
    database.rollback()
    with closing(sqlite3.connect(path)) as other:
        assert reviews(other) == 1
        assert Inbox(other, consumer="review-board").handle(EVENT, adds_a_review(other)) == DUPLICATE


def test_an_apply_that_fails_leaves_neither_effect_nor_record(database: sqlite3.Connection) -> None:
    inbox = Inbox(database, consumer="review-board")

    def breaks(event: Any) -> None:
        adds_a_review(database)(event)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        inbox.handle(EVENT, breaks)
    assert reviews(database) == 0
    assert inbox.handle(EVENT, adds_a_review(database)) == {"applied": True}


def test_consumers_are_independent(database: sqlite3.Connection) -> None:
    for consumer in ("review-board", "billing"):
        assert Inbox(database, consumer=consumer).handle(EVENT, adds_a_review(database)) == {"applied": True}
    assert reviews(database) == 2


def test_of_handlers_that_race_one_applies(database: sqlite3.Connection, path: Path) -> None:
    ready, answers = threading.Barrier(4), []

    def handle() -> None:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            inbox = Inbox(connection, consumer="review-board")
            ready.wait(timeout=30)
            answers.append(inbox.handle(EVENT, adds_a_review(connection)))

    threads = [threading.Thread(target=handle) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(answer["applied"] for answer in answers) == [False, False, False, True]
    assert reviews(database) == 1


def test_a_handler_that_looked_before_the_other_committed_is_told_so(database: sqlite3.Connection, path: Path) -> None:
    """Both have looked and found nothing; the second finds the first one's record when it writes its own."""

    class Slow(sqlite3.Connection):
        """Lets somebody in between the look and the record."""

        between: Any = None

        def cursor(self, *given: Any, **named: Any) -> sqlite3.Cursor:  # type: ignore[override]
            made: sqlite3.Cursor = super().cursor(*given, **named)
            if self.between is not None and self.seen:
                run, self.between = self.between, None
                run()
            self.seen = True
            return made

        seen = False

    with closing(sqlite3.connect(path, factory=Slow)) as slow:
        inbox = Inbox(slow, consumer="review-board", paramstyle="qmark")
        first = Inbox(database, consumer="review-board")
        slow.between = lambda: first.handle(EVENT, adds_a_review(database))
        assert inbox.handle(EVENT, never) == DUPLICATE
    assert reviews(database) == 1


def test_an_event_may_be_an_object_with_an_id(database: sqlite3.Connection) -> None:
    inbox = Inbox(database, consumer="review-board")
    assert inbox.handle(SimpleNamespace(id="rev_1"), nothing) == {"applied": True}
    assert inbox.handle(SimpleNamespace(id="rev_1"), nothing) == DUPLICATE


def test_a_table_of_another_name(database: sqlite3.Connection) -> None:
    inbox = Inbox(database, consumer="c", table="main.seen_events")
    inbox.create_table()
    inbox.create_table()  # made before: left as it is
    inbox.handle(EVENT, nothing)
    assert database.execute("select consumer, event_id from seen_events").fetchall() == [("c", EVENT["id"])]
    assert database.execute("select count(*) from automation_inbox").fetchone() == (0,)


@pytest.mark.parametrize("paramstyle", ["qmark", "named"])
def test_a_wrapped_connection_names_its_paramstyle(database: sqlite3.Connection, paramstyle: str) -> None:
    class Wrapped:
        """As a pool hands connections out."""

        def __getattr__(self, name: str) -> Any:
            return getattr(database, name)

    with pytest.raises(ValueError, match="declares no paramstyle"):
        Inbox(Wrapped(), consumer="c")
    inbox = Inbox(Wrapped(), consumer="c", paramstyle=paramstyle)
    assert inbox.handle(EVENT, nothing) == {"applied": True}
    assert inbox.handle(EVENT, nothing) == DUPLICATE


def test_a_connection_that_commits_by_itself_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        inbox = Inbox(connection, consumer="c")
        inbox.create_table()
        with pytest.raises(ValueError, match="autocommit"):
            inbox.handle(EVENT, nothing)


def test_an_apply_that_would_run_after_the_commit_is_refused(database: sqlite3.Connection) -> None:
    inbox = Inbox(database, consumer="c")

    async def later(event: Any) -> None:
        pytest.fail("never awaited")

    with pytest.raises(TypeError, match="coroutine"):
        inbox.handle(EVENT, later)
    waits = asyncio.Future[None](loop=(loop := asyncio.new_event_loop()))
    with closing(loop), pytest.raises(TypeError, match="awaitable"):
        inbox.handle(EVENT, lambda _: waits)
    assert inbox.handle(EVENT, nothing) == {"applied": True}


@pytest.mark.parametrize("event", [{"id": ""}, {"id": None}, {"id": "x" * 201}, {"id": 7}])
def test_an_event_without_a_usable_id_is_refused(database: sqlite3.Connection, event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="event's id"):
        Inbox(database, consumer="c").handle(event, nothing)


def test_names_are_checked(database: sqlite3.Connection) -> None:
    for given in (
        {"consumer": ""},
        {"consumer": "c", "table": "a; drop table b"},
        {"consumer": "c", "paramstyle": "x"},
    ):
        with pytest.raises(ValueError, match=r"must be|is not one of"):
            Inbox(database, **{"consumer": "c", **given})


def test_what_the_database_refuses_for_another_reason_is_no_duplicate(database: sqlite3.Connection) -> None:
    database.execute("create table strict_inbox (consumer text check (consumer <> 'c'), event_id text)")
    with pytest.raises(sqlite3.IntegrityError):
        Inbox(database, consumer="c", table="strict_inbox").handle(EVENT, nothing)
