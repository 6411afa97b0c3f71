"""A file of events on its way: checked as a whole, sent in the door's batches, and told event by event.

An event that the service has no time for, or a request that does not reach it, is sent again after the pause that the
service names; its key makes a repetition harmless. What was taken and then not heard of is found again the same way.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ops.cli.decisions import print_decision, print_refusal
from ops.cli.failures import OK, exit_code
from ops.cli.options import read_body
from ops.cli.output import Output, has_colour
from ops.client import Answer, Client, error_of
from schemas.errors import AutomationError, Broken, Refused, Unavailable

MOST_EVENTS = 1_000  # of one request, as the door takes them
MOST_BYTES = 1_000_000
MOST_TRIES = 6  # in a row without any event getting through
_LONGEST_PAUSE = 60.0
_ACCEPTED, _SEEN = 202, 200


def pause(seconds: float) -> None:
    """What the service asks for, before the next try."""
    time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Event:
    """`number` is its place among the file's events, from 1."""

    number: int
    body: bytes


def events_of(file: str) -> Sequence[Event]:
    """Its events, each as it stands there. Raises E_JSON_INVALID with every line that is none."""
    text = text_of("--file", file)
    if _is_event(text):
        return [Event(1, text.encode())]
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    faults = [
        {"code": "E_JSON_INVALID", "message": fault, "file": file, "line": at}
        for at, line in lines
        for fault in _faults(line)
    ]
    if faults or not lines:
        message = f"{len(faults)} lines are no events" if faults else f"--file {file} holds no event"
        raise Refused(
            "E_JSON_INVALID", f"{message}; expected one object a line, with type and data", details={"errors": faults}
        )
    return [Event(number, line.encode()) for number, (_, line) in enumerate(lines, 1)]


def batches(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """As many as one request takes, in their order; one that is too large for any stands alone."""
    batch: list[Event] = []
    size = 0
    for event in events:
        if batch and (len(batch) == MOST_EVENTS or size + len(event.body) + 1 > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event.body) + 1
    if batch:
        yield batch


@dataclass
class Sending:
    """One file on its way; `of` counts all of its events, also those that `--from` passes over."""

    client: Client
    output: Output
    of: int
    counts: Counter[str] = field(default_factory=Counter)
    worst: int = OK
    done: int = 0

    def send(self, events: Sequence[Event]) -> int:
        """Answers the exit code. Raises `Unavailable` when it gets no further, and says where to go on."""
        with _progress(len(events)) as advance:
            for batch in batches(events):
                try:
                    self._send_batch(batch, advance)
                except KeyboardInterrupt:
                    self._say_where(batch[0].number)
                    raise
        self._sum_up(len(events))
        return self.worst

    def _send_batch(self, batch: Sequence[Event], advance: Callable[[int], None]) -> None:
        waiting, tries = batch, 0
        while waiting:
            left, told = self._try(waiting)
            tries = tries + 1 if len(left) == len(waiting) else 0
            advance(len(waiting) - len(left))
            if told is not None and (tries == MOST_TRIES or self._is_away(told)):
                raise self._stopped(left[0].number, told)
            if told is not None:
                pause(_seconds(told))
            waiting = left

    def _try(self, events: Sequence[Event]) -> tuple[Sequence[Event], Unavailable | None]:
        """Those that have to be sent again, and what was said of it."""
        try:
            return self._try_one(events[0]) if len(events) == 1 else self._try_many(events)
        except Unavailable as error:
            return events, error

    def _try_many(self, events: Sequence[Event]) -> tuple[Sequence[Event], Unavailable | None]:
        results = self.client.send_events(b"\n".join(event.body for event in events)).document["results"]
        left: list[Event] = []
        told: Unavailable | None = None
        for event, result in zip(events, results, strict=True):
            problem = result.get("error")
            error = None if problem is None else error_of(problem, int(problem.get("status", 0)))
            if error is None:
                status = _ACCEPTED if result.get("status") == "created" else _SEEN
                self._taken(event, Answer(status, result, ""))
            elif isinstance(error, Unavailable):
                told = error
                left.append(event)
            else:
                self._refused(event, error, str(result.get("status")))
        return left, told

    def _try_one(self, event: Event) -> tuple[Sequence[Event], Unavailable | None]:
        try:
            self._taken(event, self.client.send_event(event.body))
        except (Refused, Broken) as error:
            if "status" not in error.details:
                raise
            is_conflict = error.code == "E_IDEMPOTENCY_CONFLICT"
            self._refused(event, error, "conflict" if is_conflict else "refused")
        return [], None

    def _is_away(self, told: Unavailable) -> bool:
        """Nothing answers there, and nothing ever did: it may be the wrong address."""
        return not self.done and "status" not in told.details

    def _taken(self, event: Event, answer: Answer) -> None:
        self.done += 1
        self.counts[str(answer.document.get("status"))] += 1
        print_decision(answer, event.number, self.of, self.output)

    def _refused(self, event: Event, error: AutomationError, outcome: str) -> None:
        self.done += 1
        self.counts[outcome] += 1
        self.worst = max(self.worst, exit_code(error))
        print_refusal(error, event.number, self.of, self.output)

    def _stopped(self, number: int, told: Unavailable) -> Unavailable:
        if self.done:
            self._sum_up(self.done)
            self._say_where(number)
        return told

    def _say_where(self, number: int) -> None:
        self.output.note(
            f"{self.done} of {self.of} were sent; go on with --from {number}, or send the whole file again: "
            "used keys make nothing"
        )

    def _sum_up(self, total: int) -> None:
        if self.of == 1:
            return
        if self.output.as_json:
            self.output.record({"events": total, **dict(sorted(self.counts.items()))})
            return
        for outcome, count in sorted(self.counts.items()):
            self.output.note(f"{outcome:<14}{count:>9,}")
        self.output.note(f"{'events':<14}{total:>9,}")


def _seconds(told: Unavailable) -> float:
    """How long the service asks to stay away, a minute at most."""
    asked = told.details.get("retry_after")
    return min(float(asked), _LONGEST_PAUSE) if isinstance(asked, int | float) else 1.0


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, beside what is printed; elsewhere nothing."""
    if total <= 1 or not has_colour(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("events"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    to_terminal = sys.stdout.isatty()  # a pipe gets its lines itself
    with Progress(*shown, console=Console(stderr=True), redirect_stdout=to_terminal, transient=True) as bar:
        task = bar.add_task("events", total=total)
        yield lambda number: bar.advance(task, number)


def _faults(line: str) -> Iterator[str]:
    try:
        event = parsed(line, "the line")
    except Refused as refused:
        yield refused.message
        return
    if not isinstance(event, Mapping):
        yield f"{type(event).__name__} where an object was expected"
        return
    missing = [name for name in ("type", "data") if name not in event]
    if missing:
        yield f"an event without {' and '.join(missing)}"


def _is_event(text: str) -> bool:
    """Whether the whole text is one object, however many lines it has."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        line = "" if exc.lineno == 1 else f"line {exc.lineno}, "
        raise Refused("E_JSON_INVALID", f"{what} is not JSON: {exc.msg} at {line}column {exc.colno}") from exc
    except (ValueError, RecursionError) as exc:
        raise Refused("E_JSON_INVALID", f"{what} is not JSON: {exc}") from exc


def text_of(option: str, file: str) -> str:
    try:
        return read_body(option, file).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Refused("E_JSON_INVALID", f"{option} {file} is not UTF-8 text; expected JSON") from exc
