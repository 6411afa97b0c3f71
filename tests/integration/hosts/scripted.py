"""A small executor for tests: gives every request what it needs, keeps the history, and remembers what it was told."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from processors.engine.requests import BodyEnd, CancelRequest, Request, SleepRequest, StepRequest, TimerRequest
from processors.executor.hosts import CodeBundle, HostSettings, StepHosts
from processors.ports.bodies import BodyStart, Past
from processors.ports.measures import Measures
from schemas.records import ErrorInfo

BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
PROJECT = "acme"


@dataclass
class Story:
    """One run as the test's executor sees it. `auto` False: outcomes are kept and not delivered."""

    start: BodyStart
    auto: bool = True
    seq: int = 0
    told: list[str] = field(default_factory=list)
    history: list[Past] = field(default_factory=list)
    after: dict[str, int] = field(default_factory=dict)
    turns: list[tuple[int, list[Request]]] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[str, int, ErrorInfo]] = field(default_factory=list)
    gave_up: list[str] = field(default_factory=list)
    end: BodyEnd | None = None
    diverged: ErrorInfo | None = None
    lost: str | None = None
    suspected: bool | None = None
    unbegun: list[str] = field(default_factory=list)

    def items(self) -> list[str]:
        return [one.item for _, requests in self.turns for one in requests if not isinstance(one, CancelRequest)]


class Scripted:
    """The listener. `hosts` is set after it is made, since each needs the other."""

    hosts: StepHosts

    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.measures = Measures()
        self.go_for = 3600.0
        self.lates: list[tuple[str, int, str, int, str, str | None, ErrorInfo | None]] = []
        self._changed = asyncio.Event()

    # -- the test's side ----------------------------------------------------------------------------

    def start(self, run_id: str, definition: int, *, given: str = "{}", fence: int = 1, auto: bool = True,
              history: Sequence[Past] = (), losses: int = 0, go: bool = True) -> Story:  # fmt: skip
        start = BodyStart(
            run_id, fence, PROJECT, "wf_t", definition, "1", "code", 1, given, BEGAN, f"key-{run_id}", "p", "l", "evt",
            "t", BEGAN, history, self.go_until() if go else None, losses,
        )  # fmt: skip
        story = self.stories[run_id] = Story(start, auto, max((past.seq for past in history), default=0))
        self.hosts.start(start)
        return story

    def go_until(self) -> float:
        return time.monotonic() + self.go_for

    async def until(self, true: Callable[[], object], within: float = 15.0) -> None:
        async with asyncio.timeout(within):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    def deliver(self, run_id: str, item: str, kind: str, outcome: str, value: str | None, error: ErrorInfo | None,
                *, send_value: bool = False) -> None:  # fmt: skip
        story = self.stories[run_id]
        story.seq += 1
        at = BEGAN + timedelta(seconds=story.seq)
        story.history.append(Past(story.seq, item, kind, story.after[item], outcome, value, error, at))
        if story.auto:
            self.hosts.deliver(
                run_id, story.start.fence, story.seq, item, outcome, value if send_value else None, error, at,
                self.go_until(),
            )  # fmt: skip

    # -- the listener -------------------------------------------------------------------------------

    def turned(self, run_id: str, fence: int, after: int, requests: Sequence[Request], end: BodyEnd | None) -> None:
        story = self.stories[run_id]
        assert fence == story.start.fence
        story.turns.append((after, list(requests)))
        story.end = end
        for request in requests:
            if isinstance(request, CancelRequest):
                story.gave_up.append(request.target)
                continue
            story.after.setdefault(request.item, after)
            if isinstance(request, SleepRequest | TimerRequest) and story.auto:
                kind = "sleep" if isinstance(request, SleepRequest) else "timer"
                self.deliver(run_id, request.item, kind, "succeeded", None, None)
            elif isinstance(request, StepRequest) and not request.started and story.auto:
                self.run_step(run_id, request.item, 1, request.timeout)
        self._changed.set()

    def run_step(self, run_id: str, item: str, attempt: int, timeout: float) -> None:
        fence = self.stories[run_id].start.fence
        self.hosts.run_step(run_id, fence, item, attempt, f"x1.{attempt}", f"{run_id}:{item}:g1", timeout)

    def succeeded(self, run_id: str, fence: int, item: str, attempt: int, token: str, value: str, cost: float) -> None:
        self.stories[run_id].values[item] = value
        assert cost >= 0
        self.deliver(run_id, item, "step", "succeeded", value, None)
        self._changed.set()

    def failed(
        self, run_id: str, fence: int, item: str, attempt: int, token: str, error: ErrorInfo, cost: float
    ) -> None:
        self.stories[run_id].failures.append((item, attempt, error))
        self.stories[run_id].told.append("failed")
        self._changed.set()

    def diverged(self, run_id: str, fence: int, error: ErrorInfo) -> None:
        self.stories[run_id].diverged = error
        self._changed.set()

    def late(self, run_id: str, fence: int, item: str, attempt: int, status: str, value: str | None,
             error: ErrorInfo | None, cost: float) -> None:  # fmt: skip
        assert cost >= 0
        self.lates.append((run_id, fence, item, attempt, status, value, error))
        self._changed.set()

    def lost(self, runs: Sequence[tuple[str, int]], reason: str, *, suspected: bool = True,
             unbegun: Collection[tuple[str, str]] = ()) -> None:  # fmt: skip
        for run_id, _ in runs:
            story = self.stories[run_id]
            story.lost, story.suspected = reason, suspected
            story.unbegun = [item for owner, item in unbegun if owner == run_id]
            story.told.append("lost")
        self._changed.set()


class Shelf:
    """Bundles by definition id."""

    def __init__(self) -> None:
        self.bundles: dict[int, CodeBundle | Exception] = {}
        self.fetched = 0

    def put(self, body: str, *, definition: int = 1, digest: str | None = None) -> int:
        """A bundle of one file that declares workflow `t`, version 1; `body` follows the imports."""
        text = f"from anthares44.automation import workflow, step\nimport asyncio, os, sys, time\n{body}"
        self.bundles[definition] = CodeBundle(digest or f"sha256:{definition}", {"flow.py": text}, "flow.py", "t", "1")
        return definition

    async def __call__(self, project_id: str, definition_id: int) -> CodeBundle:
        assert project_id == PROJECT
        self.fetched += 1
        found = self.bundles[definition_id]
        if isinstance(found, Exception):
            raise found
        return found


def quick(**changes: object) -> HostSettings:
    """Settings for tests: what waits waits less, but for a host that is only slow."""
    return HostSettings(**{"check_every": 0.05, "grace": 0.3, **changes})  # type: ignore[arg-type]  # names are fields
