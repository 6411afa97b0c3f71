"""What the body and its steps know about their run: `ctx`.

In the body, time and chance are the recorded ones. In a step, time is the wall clock, chance is the same
in each try, and the idempotency key is the step's.
"""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from anthares44.automation import chance
from anthares44.automation.errors import bounded

LOG_BYTES = 8 * 1024
_Drawn = TypeVar("_Drawn")


class AttemptView(Protocol):
    """The attempt whose function is running."""

    @property
    def item_id(self) -> str: ...
    @property
    def key(self) -> str: ...
    def next_draw(self) -> int: ...


class RunView(Protocol):
    """The run as its context sees it."""

    run_id: str
    workflow: str
    version: str
    key: str
    seed: str
    generation: int
    seq: int
    input: Any

    def now(self) -> datetime: ...
    def next_draw(self) -> int: ...
    def log(self, level: str, text: str, item: str | None) -> None: ...


ATTEMPT: ContextVar[AttemptView | None] = ContextVar("a44_attempt", default=None)


class RunLog:
    """`ctx.log.info("paid %s", amount)`: goes to the run's log, and is silent while history is replayed."""

    __slots__ = ("_run",)

    def __init__(self, run: RunView) -> None:
        self._run = run

    def debug(self, text: str, *parts: object) -> None:
        self._write("debug", text, parts)

    def info(self, text: str, *parts: object) -> None:
        self._write("info", text, parts)

    def warning(self, text: str, *parts: object) -> None:
        self._write("warning", text, parts)

    def error(self, text: str, *parts: object) -> None:
        self._write("error", text, parts)

    def _write(self, level: str, text: str, parts: tuple[object, ...]) -> None:
        attempt = ATTEMPT.get()
        line = str(text) % parts if parts else str(text)
        self._run.log(level, bounded(line, LOG_BYTES), attempt.item_id if attempt else None)


class Context:
    """`ctx`, the first argument of a body."""

    __slots__ = ("_run", "log")

    def __init__(self, run: RunView) -> None:
        self._run = run
        self.log = RunLog(run)

    @property
    def run_id(self) -> str:
        return self._run.run_id

    @property
    def workflow(self) -> str:
        return self._run.workflow

    @property
    def version(self) -> str:
        """The published version: "4", or "3-dev.2" while developing."""
        return self._run.version

    @property
    def input(self) -> Any:
        return self._run.input

    @property
    def idempotency_key(self) -> str:
        """The step's key inside a step (the same in each of its tries), the run's in the body."""
        attempt = ATTEMPT.get()
        return attempt.key if attempt else self._run.key

    def now(self) -> datetime:
        """Aware UTC time: in the body that of the turn's delivery, in a step the wall clock."""
        return datetime.now(UTC) if ATTEMPT.get() else self._run.now()

    def random(self) -> float:
        """A float in [0, 1), the same on replay."""
        return self._draw(chance.number)

    def uuid(self) -> UUID:
        """An id, the same on replay."""
        return self._draw(chance.identifier)

    def _draw(self, of: Callable[[str, int, str, int], _Drawn]) -> _Drawn:
        run, attempt = self._run, ATTEMPT.get()
        if attempt:
            place = chance.place_in_step(attempt.item_id)
            return of(run.seed, run.generation, place, attempt.next_draw())
        return of(run.seed, run.generation, chance.place_in_body(run.seq), run.next_draw())
