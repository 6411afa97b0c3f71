"""`Inbox(connection, consumer="...")`: each event is applied once, however often it is delivered.

The record that an event was handled and what handling it did are one transaction of the caller's own database, over any
DB-API 2.0 connection. Standard library only.
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict, TypeVar

DUPLICATE = "duplicate_event"
DEFAULT_TABLE = "automation_inbox"
LONGEST_NAME = 200

_TABLE = re.compile(r"[A-Za-z_]\w{0,62}(\.[A-Za-z_]\w{0,62})?", re.ASCII)
_SECTION = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
# How drivers write a value's place, by the `paramstyle` that DB-API has them declare.
_MARKS = {
    "qmark": ("?", "?"),
    "numeric": (":1", ":2"),
    "named": (":consumer", ":event"),
    "format": ("%s", "%s"),
    "pyformat": ("%(consumer)s", "%(event)s"),
}
_BY_NAME = frozenset({"named", "pyformat"})


class Cursor(Protocol):
    """What is used of a DB-API cursor."""

    def execute(self, operation: str, parameters: Any = ..., /) -> object: ...

    def fetchone(self) -> Any: ...

    def close(self) -> object: ...


class Connection(Protocol):
    """What is used of a DB-API connection."""

    def cursor(self) -> Any: ...

    def commit(self) -> object: ...

    def rollback(self) -> object: ...


class HasId(Protocol):
    """A run event as an object."""

    @property
    def id(self) -> str: ...


class Handling(TypedDict):
    """What became of a delivery. `reason` is there where it was not applied."""

    applied: bool
    reason: NotRequired[str]


Event = TypeVar("Event", bound=Mapping[str, Any] | HasId)


class Inbox:
    """`consumer` names whose memory this is: each consumer applies each event once. The connection is the inbox's own
    while it handles an event: `handle` commits, or rolls back, what is open on it. `paramstyle` is the driver's own
    unless it is given, for a connection that wraps another.
    """

    def __init__(
        self, connection: Connection, *, consumer: str, table: str = DEFAULT_TABLE, paramstyle: str | None = None
    ) -> None:
        if not _TABLE.fullmatch(table):
            raise ValueError(f"table {table!r} must be a plain name, or schema.name")
        style = paramstyle or _paramstyle_of(connection)
        if style not in _MARKS:
            raise ValueError(f"paramstyle {style!r} is not one of {', '.join(_MARKS)}")
        self._connection = connection
        self._consumer = _checked("consumer", consumer)
        self._by_name = style in _BY_NAME
        consumer_mark, event_mark = _MARKS[style]
        text = Path(__file__).with_name("inbox.sql").read_text("utf-8")
        self._sql = {
            name: statement.format(table=table, consumer=consumer_mark, event=event_mark).strip()
            for name, statement in _SECTION.findall(text)
        }

    def create_table(self) -> None:
        """Make the table where there is none, and commit. When a consumer is set up: not by several at a time."""
        try:
            self._execute("create")
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def handle(self, event: Event, apply: Callable[[Event], object]) -> Handling:
        """Run `apply(event)` unless this consumer has done so before; record and effects are one commit.

        Whatever `apply` raises is raised, and nothing of it stays: the event may be delivered again. Of two that handle
        one event at the same time, the second waits for the first.
        """
        if inspect.iscoroutinefunction(apply):
            raise TypeError("apply must be a plain function: a coroutine would run after the commit")
        self._refuse_autocommit()
        event_id = _checked("the event's id", event["id"] if isinstance(event, Mapping) else event.id)
        try:
            if self._is_known(event_id) or not self._note(event_id):
                self._connection.rollback()
                return {"applied": False, "reason": DUPLICATE}
            _refuse_awaitable(apply(event))
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        return {"applied": True}

    def _is_known(self, event_id: str) -> bool:
        return self._execute("find", event_id) is not None

    def _note(self, event_id: str) -> bool:
        """False where another handler of the same event was first."""
        try:
            self._execute("note", event_id)
        except Exception as error:
            # Drivers share no base class; DB-API prescribes the name.
            if all(kind.__name__ != "IntegrityError" for kind in type(error).__mro__):
                raise
            self._connection.rollback()
            if not self._is_known(event_id):
                raise
            return False
        return True

    def _execute(self, name: str, event_id: str | None = None) -> Any:
        """The first row, where the statement asks for one."""
        cursor: Cursor = self._connection.cursor()
        try:
            if event_id is None:
                cursor.execute(self._sql[name])
            else:
                cursor.execute(self._sql[name], self._parameters(event_id))
            return cursor.fetchone() if name == "find" else None
        finally:
            cursor.close()

    def _parameters(self, event_id: str) -> Mapping[str, str] | Sequence[str]:
        if self._by_name:
            return {"consumer": self._consumer, "event": event_id}
        return (self._consumer, event_id)

    def _refuse_autocommit(self) -> None:
        """With every statement its own transaction, an effect could stay without its record."""
        connection: Any = self._connection
        told = getattr(connection, "autocommit", None)
        old_sqlite = type(connection).__module__.startswith("sqlite3") and told in (None, -1)
        if told is True or (old_sqlite and connection.isolation_level is None):
            raise ValueError("the connection commits by itself after each statement; switch its autocommit off")


def _checked(what: str, name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"{what} must be text of 1 to {LONGEST_NAME} characters, not {str(name)[:LONGEST_NAME]!r}")
    return name


def _refuse_awaitable(answer: object) -> None:
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer):
        raise TypeError("apply returned an awaitable, which nobody would await before the commit")


def _paramstyle_of(connection: object) -> str:
    """As the driver's module declares it."""
    parts = type(connection).__module__.split(".")
    for length in range(len(parts), 0, -1):
        found = getattr(sys.modules.get(".".join(parts[:length])), "paramstyle", None)
        if isinstance(found, str):
            return found
    raise ValueError(f'the driver of {type(connection).__qualname__} declares no paramstyle; give paramstyle="..."')
