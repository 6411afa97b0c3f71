"""Where each effect of a decision goes: into the batch, behind its commit, at once, or nowhere when stopping."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from processors.engine.commands import Cancel, Claimed, Command, Diverged, Done, Failed, Turn
from processors.engine.decide import decide
from processors.engine.requests import BodyEnd, BodyStatus, CancelRequest, StepRequest
from processors.engine.state import RunState
from processors.executor.commits import commit_apart, is_worth_a_commit, leave_out
from processors.executor.effects import EffectRunner, Waiting
from processors.executor.listener import Listener
from processors.executor.live_run import LiveRun
from processors.ports.journal import Batch, Claim, Entry, LateAttempt
from schemas.errors import Broken
from schemas.records import ErrorInfo

NOW = datetime(2026, 7, 19, 14, 0, tzinfo=UTC)
GO_UNTIL = 1000.0
STUCK = ErrorInfo("E_BUNDLE_IMPORT", "ImportError", "no module named api", retryable=False)


class Heard:
    """Bodies that write down what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.told.append((name, *arguments))

    @property
    def names(self) -> list[str]:
        return [one[0] for one in self.told]


def claim(run_id: str = "run_1", **changes: Any) -> Claim:
    told: dict[str, Any] = dict.fromkeys(Claim.__struct_fields__, "x")
    told |= {
        "run_id": run_id,
        "fence": 3,
        "generation": 1,
        "crashes": 0,
        "max_attempts": 5,
        "owner_lost": False,
        "has_mail": False,
    }
    told |= {"started_at": NOW, "occurred_at": NOW, "accepted_at": NOW, "lane_seq": None, "correlation_id": None}
    return Claim(**{**told, **changes})


class Stage:
    def __init__(self) -> None:
        self.bodies = Heard()
        self.posted: list[tuple[str, int, Command]] = []
        self.effects = EffectRunner(lambda: NOW, "t.run-events", self.post)
        self.effects.attach({"code": self.bodies})
        self.run = LiveRun(claim(), "code", RunState("run_1"), 0)
        self.batch, self.waiting = Batch(), list[Waiting]()

    def post(self, run_id: str, fence: int, command: Command) -> None:
        self.posted.append((run_id, fence, command))

    def decide(self, *many: Command) -> None:
        for command in many:
            self.effects.sort(self.run, decide(self.run.state, command, NOW, 0.5), self.batch, self.waiting)

    def commit(self) -> None:
        for run, effect in self.waiting:
            self.effects.act(run, effect, GO_UNTIL)
        self.batch, self.waiting = Batch(), []

    def begin(self, *requests: StepRequest) -> None:
        self.decide(Claimed(owner_lost=False))
        self.commit()
        self.decide(Turn(0, requests, None))


def asked(name: str, token: str | None = None) -> StepRequest:
    return StepRequest(name, 10.0, started=token is not None, token=token)


def test_nothing_that_waits_for_the_commit_happens_before_it() -> None:
    stage = Stage()
    stage.begin(asked("a"))
    assert stage.bodies.names == ["start"]
    stage.commit()
    assert stage.bodies.told[-1][:6] == ("run_step", "run_1", 3, "a", 1, "x1.1")
    stage.decide(Done("a", 1, "x1.1", "1", 0.1))
    assert stage.bodies.names == ["start", "run_step"]
    stage.commit()
    assert stage.bodies.told[-1] == ("deliver", "run_1", 3, 1, "a", "succeeded", None, None, NOW, GO_UNTIL)


def test_a_cancellation_of_what_has_not_begun_waits_for_its_beginning() -> None:
    """At once it would find nothing, and the step would begin behind it and run to its end."""
    stage = Stage()
    stage.begin(asked("a"), asked("b"))
    stage.decide(Turn(0, [asked("c"), CancelRequest("c")], None))
    assert stage.bodies.names == ["start"]
    stage.commit()
    told = [(one[0], one[3]) for one in stage.bodies.told[1:]]
    assert told == [("run_step", "a"), ("run_step", "b"), ("run_step", "c"), ("cancel_step", "c")]


def test_a_cancellation_of_what_runs_does_not_wait() -> None:
    stage = Stage()
    stage.begin(asked("a", "h1"))
    stage.commit()
    stage.decide(Cancel("ops", "stop"))
    assert stage.bodies.names == ["start", "cancel_step", "close_run"]


def test_the_end_is_in_the_batch_and_the_body_is_gone() -> None:
    stage = Stage()
    stage.begin(asked("a", "h1"))
    stage.decide(Turn(0, [], BodyEnd(BodyStatus.SUCCEEDED, "1")), Done("a", 1, "h1", "1", 0.1))
    assert [end.state for end in stage.batch.ends] == ["succeeded"]
    assert len(stage.batch.announcements) == 1
    assert stage.bodies.names == ["start", "drop"]
    assert stage.run.resting


def test_a_blocked_run_rests_without_a_time() -> None:
    stage = Stage()
    stage.decide(Claimed(owner_lost=False), Diverged(STUCK))
    assert [(rest.state, rest.visible_at) for rest in stage.batch.rests] == [("blocked", None)]


async def test_an_armed_timer_posts_its_due() -> None:
    stage = Stage()
    stage.begin(asked("a", "h1"), asked("b", "h2"))
    stage.decide(Failed("a", 1, "h1", ErrorInfo("E", "E", "e"), 0.1))
    stage.commit()
    assert list(stage.run.timers) == ["a"]
    stage.run.disarm()
    assert stage.run.timers == {}


def test_a_stopping_executor_begins_nothing_and_counts_what_it_withheld() -> None:
    stage = Stage()
    stage.begin(asked("a", "h1"))
    stage.commit()
    assert stage.run.is_unsure
    stage.decide(Done("a", 1, "h1", "1", 0.1))
    for run, effect in stage.waiting:
        stage.effects.withhold(run, effect)
    assert stage.bodies.names == ["start"]
    assert not stage.run.is_unsure
    stage.decide(Turn(1, [asked("b")], None))
    for run, effect in stage.waiting[1:]:
        stage.effects.withhold(run, effect)
    assert (stage.run.state.in_flight, stage.run.withheld) == (1, 1)
    assert not stage.run.is_unsure


def test_a_body_that_has_not_answered_may_have_begun_something() -> None:
    stage = Stage()
    assert not stage.run.is_unsure
    stage.decide(Claimed(owner_lost=False))
    assert not stage.run.is_unsure
    stage.commit()
    assert stage.run.is_unsure
    stage.decide(Turn(0, [asked("a")], None))
    assert stage.run.is_unsure  # decided, and about to run


def test_what_a_lost_owner_had_in_flight_is_not_forgotten_by_a_stop() -> None:
    stage = Stage()
    stage.run = LiveRun(claim(owner_lost=True), "code", RunState("run_1"), 0)
    stage.decide(Claimed(owner_lost=True))
    assert stage.run.is_unsure
    stage.commit()
    assert stage.bodies.told[0][1].go_until is None


def test_bodies_tell_commands() -> None:
    stage = Stage()
    late: list[LateAttempt] = []
    listener = Listener(stage.post, late.append)
    listener.turned("run_1", 3, 2, [asked("a")], None)
    listener.succeeded("run_1", 3, "a", 1, "h1", "1", 0.1)
    listener.failed("run_1", 3, "a", 1, "h1", STUCK, 0.1)
    listener.diverged("run_1", 3, STUCK)
    listener.lost([("run_1", 3), ("run_2", 1)], "killed")
    assert [(run_id, fence, type(command).__name__) for run_id, fence, command in stage.posted] == [
        ("run_1", 3, "Turn"),
        ("run_1", 3, "Done"),
        ("run_1", 3, "Failed"),
        ("run_1", 3, "Diverged"),
        ("run_1", 3, "BodyLost"),
        ("run_2", 1, "BodyLost"),
    ]
    listener.late("run_1", 2, "a", 1, "succeeded", "1", None, 0.1)
    assert late == [LateAttempt("run_1", 2, "a", 1, "succeeded", "1", None, None, 0.1)]


class Refusing:
    """A journal that refuses batches in which one of these runs stands."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.stored: list[str] = []
        self.mail: list[list[int]] = []

    async def commit(self, batch: Batch) -> Sequence[Claim]:
        runs = [entry.run_id for entry in batch.entries]
        if self.bad.intersection(runs):
            raise Broken("E_INTERNAL", "refused")
        self.stored += runs
        self.mail.append(batch.mail)
        return [claim("run_claimed")] if batch.room and not runs else []


async def test_a_refused_batch_is_taken_apart_until_the_runs_at_fault_stand_alone() -> None:
    record = decide(RunState("x"), Cancel("ops", "stop"), NOW, 0.5).records[0]
    entries = [Entry(f"run_{n}", 1, "shop", record) for n in range(20) for _ in range(2)]
    journal = Refusing("run_3", "run_11", "run_12")
    claims, refused = await commit_apart(journal, Batch(entries=entries, room=4))  # type: ignore[arg-type]
    assert [one.run_id for one in claims] == ["run_claimed"]
    assert set(refused) == {"run_3", "run_11", "run_12"}
    assert len(journal.stored) == 34
    batch = Batch(entries=entries)
    leave_out(batch, "run_3")
    assert len(batch.entries) == 38


async def test_mail_goes_with_the_last_part_of_a_batch_that_was_taken_apart() -> None:
    record = decide(RunState("x"), Cancel("ops", "stop"), NOW, 0.5).records[0]
    journal = Refusing("run_2")
    batch = Batch(entries=[Entry(f"run_{n}", 1, "shop", record) for n in range(3)], mail=[7, 8])
    await commit_apart(journal, batch)  # type: ignore[arg-type]
    assert [told for told in journal.mail if told] == [[7, 8]]
    assert journal.mail[-1] == [7, 8]


def test_a_crash_count_is_worth_a_commit_by_itself() -> None:
    assert is_worth_a_commit(Batch(crashes={"run_1": 1}))
    assert not is_worth_a_commit(Batch(room=5))
