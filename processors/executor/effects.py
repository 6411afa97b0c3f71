"""Effects put where they belong: into the batch, behind its commit, or done at once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import assert_never

from processors.engine import commands
from processors.engine.effects import (
    AfterCommit,
    Arm,
    AtOnce,
    Block,
    CancelStep,
    CloseBody,
    Deliver,
    DropBody,
    End,
    InTransaction,
    Park,
    RunStep,
    StartBody,
)
from processors.engine.ledger import Ledger
from processors.engine.moves import RunStatus
from processors.executor.endings import end_of
from processors.executor.listener import Post
from processors.executor.live_run import LiveRun
from processors.ports.bodies import Bodies
from processors.ports.journal import Announcement, Batch, RunRest
from schemas.run_events import RunEvent, encode_run_event

DEADLINE_TIMER = "~deadline"
# An effect that waits for the commit of its decision, or for one before it that does.
Waiting = tuple[LiveRun, AfterCommit | AtOnce]


class EffectRunner:
    def __init__(self, now: Callable[[], datetime], run_events_topic: str, post: Post) -> None:
        self._now = now
        self._topic = run_events_topic
        self._post = post
        self._bodies: Mapping[str, Bodies] = {}

    def attach(self, bodies: Mapping[str, Bodies]) -> None:
        self._bodies = bodies

    async def aclose(self) -> None:
        for body in self._bodies.values():
            await body.aclose()

    def drop_all(self, runs: Iterable[LiveRun]) -> None:
        for run in runs:
            run.disarm()
            self._bodies[run.kind].drop(run.run_id, run.claim.fence)

    def sort(self, run: LiveRun, decision: Ledger, batch: Batch, waiting: list[Waiting]) -> None:
        """Puts every effect of a decision in its place."""
        for effect in decision.effects:
            match effect:
                case Deliver() | StartBody() | RunStep() | Arm():
                    waiting.append((run, effect))
                case End() | Park() | Block():
                    self._put(run, effect, decision.now, batch)
                case CancelStep() | CloseBody() if any(one is run for one, _ in waiting):
                    waiting.append((run, effect))  # a cancellation of what has not begun yet
                case CancelStep() | CloseBody() | DropBody():
                    self._at_once(run, effect)
                case _:
                    assert_never(effect)

    def block(self, run: LiveRun, effect: Block, now: datetime, batch: Batch) -> None:
        """A run that cannot go on: at rest with this batch, its body gone."""
        self._at_once(run, DropBody())
        self._put(run, effect, now, batch)

    def _put(self, run: LiveRun, effect: InTransaction, now: datetime, batch: Batch) -> None:
        run.resting = True
        claim = run.claim
        match effect:
            case End():
                batch.ends.append(end_of(run, effect, now))
                self._announce(run, effect.status, effect.error.code if effect.error else None, now, batch)
            case Park():
                batch.rests.append(
                    RunRest(run.run_id, claim.project_id, claim.queue_id, effect.status, effect.visible_at)
                )
            case Block():
                batch.rests.append(RunRest(run.run_id, claim.project_id, claim.queue_id, RunStatus.BLOCKED, None))
                self._announce(run, RunStatus.BLOCKED, effect.error.code, now, batch)
            case _:
                assert_never(effect)

    def _announce(self, run: LiveRun, status: RunStatus, error_code: str | None, now: datetime, batch: Batch) -> None:
        claim = run.claim
        event = RunEvent(
            run_id=claim.run_id,
            project_id=claim.project_id,
            workflow_id=claim.workflow_id,
            version=claim.version,
            state=status,
            occurred_at=_instant(now),
            sequence=run.state.seq,
            error_code=error_code,
            event_id=claim.event_id,
            trigger_id=claim.trigger_id,
            correlation_id=claim.correlation_id,
        )
        batch.announcements.append(Announcement(self._topic, claim.run_id, encode_run_event(event)))

    def _at_once(self, run: LiveRun, effect: AtOnce) -> None:
        bodies, run_id, fence = self._bodies[run.kind], run.run_id, run.claim.fence
        match effect:
            case CancelStep():
                bodies.cancel_step(run_id, fence, effect.item)
            case CloseBody():
                bodies.close_run(run_id, fence, effect.cause)
            case DropBody():
                run.disarm()
                bodies.drop(run_id, fence)
            case _:
                assert_never(effect)

    def withhold(self, run: LiveRun, effect: AfterCommit | AtOnce) -> None:
        """After the commit, in an executor that stops: nothing begins any more."""
        if isinstance(effect, CancelStep | CloseBody | DropBody):
            self._at_once(run, effect)
        elif isinstance(effect, RunStep):
            run.withheld += 1

    def act(self, run: LiveRun, effect: AfterCommit | AtOnce, go_until: float) -> None:
        """After the commit. Until `go_until` (`time.monotonic()`) bodies may start attempts by themselves."""
        bodies, run_id, fence = self._bodies[run.kind], run.claim.run_id, run.claim.fence
        match effect:
            case Deliver():
                run.shown = effect.seq
                bodies.deliver(
                    run_id, fence, effect.seq, effect.item, effect.outcome, effect.value, effect.error, effect.at,
                    None if run.state.guesses(effect.seq) else go_until,
                )  # fmt: skip
            case StartBody():
                bodies.start(run.start(go_until))
            case RunStep():
                bodies.run_step(run_id, fence, effect.item, effect.attempt, effect.token, effect.key, effect.timeout)
            case Arm():
                self._tell_at(run, effect.item, effect.due, commands.Due(effect.item))
            case CancelStep() | CloseBody() | DropBody():
                self._at_once(run, effect)
            case _:
                assert_never(effect)

    def watch_deadline(self, run: LiveRun) -> None:
        """Before anything else is told of a run: one whose deadline has passed is not begun."""
        deadline = run.claim.deadline_at
        if deadline is not None:
            self._tell_at(run, DEADLINE_TIMER, deadline, commands.DeadlinePassed(deadline.astimezone(UTC)))

    def _tell_at(self, run: LiveRun, name: str, due: datetime, command: commands.Command) -> None:
        """At once where the time has come."""
        before = run.timers.pop(name, None)
        if before is not None:
            before.cancel()
        told = (run.run_id, run.claim.fence, command)
        wait = (due - self._now()).total_seconds()
        if wait > 0:
            run.timers[name] = asyncio.get_running_loop().call_later(wait, self._post, *told)
        else:
            self._post(*told)


@lru_cache(maxsize=1)  # the ends of one flush share their time
def _instant(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
