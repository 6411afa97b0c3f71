"""Effects put where they belong: into the batch, behind its commit, or done at once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from processors.engine import commands
from processors.engine.decide import Decision
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
from processors.engine.moves import RunStatus
from processors.executor.endings import end_of
from processors.executor.listener import Post
from processors.executor.live_run import LiveRun
from processors.ports.bodies import Bodies
from processors.ports.journal import Announcement, Batch, RunRest
from schemas.run_events import RunEvent, encode_run_event

DEADLINE_TIMER = "~deadline"


@dataclass(frozen=True, slots=True)
class Waiting:
    """An effect that waits for the commit of its decision, or for one before it that does."""

    run: LiveRun
    effect: AfterCommit | AtOnce


class EffectRunner:
    """`go_until` says until when (`time.monotonic()`) bodies may start attempts by themselves."""

    def __init__(
        self, now: Callable[[], datetime], run_events_topic: str, post: Post, go_until: Callable[[], float]
    ) -> None:
        self._now = now
        self._topic = run_events_topic
        self._post = post
        self._go_until = go_until
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

    def sort(self, run: LiveRun, decision: Decision, batch: Batch, waiting: list[Waiting]) -> None:
        """Puts every effect of a decision in its place."""
        for effect in decision.effects:
            if isinstance(effect, Park | Block | End):
                run.resting = True
                self._put(run, effect, batch)
            elif isinstance(effect, DropBody) or (
                isinstance(effect, CancelStep | CloseBody) and all(one.run is not run for one in waiting)
            ):
                self._at_once(run, effect)
            else:  # also a cancellation of what has not begun yet
                waiting.append(Waiting(run, effect))

    def block(self, run: LiveRun, effect: Block, batch: Batch) -> None:
        """A run that cannot go on: at rest with this batch, its body gone."""
        run.resting = True
        self._at_once(run, DropBody())
        self._put(run, effect, batch)

    def _put(self, run: LiveRun, effect: InTransaction, batch: Batch) -> None:
        claim = run.claim
        match effect:
            case Park():
                batch.rests.append(
                    RunRest(run.run_id, claim.project_id, claim.queue_id, effect.status, effect.visible_at)
                )
            case Block():
                batch.rests.append(RunRest(run.run_id, claim.project_id, claim.queue_id, RunStatus.BLOCKED, None))
                self._announce(run, RunStatus.BLOCKED, effect.error.code, batch)
            case End():
                batch.ends.append(end_of(run, effect, self._now()))
                self._announce(run, effect.status, effect.error.code if effect.error else None, batch)
            case _:
                assert_never(effect)

    def _announce(self, run: LiveRun, status: RunStatus, error_code: str | None, batch: Batch) -> None:
        claim = run.claim
        event = RunEvent(
            run_id=claim.run_id,
            project_id=claim.project_id,
            workflow_id=claim.workflow_id,
            version=claim.version,
            state=status,
            occurred_at=self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
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

    def withhold(self, one: Waiting) -> None:
        """After the commit, in an executor that stops: nothing begins any more."""
        if isinstance(one.effect, CancelStep | CloseBody | DropBody):
            self._at_once(one.run, one.effect)
        elif isinstance(one.effect, RunStep):
            one.run.withheld += 1

    def act(self, one: Waiting) -> None:
        """After the commit."""
        run, effect = one.run, one.effect
        bodies, run_id, fence = self._bodies[run.kind], run.run_id, run.claim.fence
        match effect:
            case StartBody():
                bodies.start(run.start(self._go_until()))
            case Deliver():
                run.shown = effect.seq
                go_until = None if run.state.guesses(effect.seq) else self._go_until()
                bodies.deliver(
                    run_id, fence, effect.seq, effect.item, effect.outcome, effect.value, effect.error, effect.at,
                    go_until,
                )  # fmt: skip
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
