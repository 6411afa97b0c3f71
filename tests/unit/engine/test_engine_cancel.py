"""Somebody wants the run to stop: before it starts, while a step runs, while it sleeps, and twice."""

from processors.engine.commands import BodyLost, Cancel, Claimed, Diverged, Due
from processors.engine.decide import CLOSE_GRACE, CLOSE_TIMER
from processors.engine.effects import Arm, Block, CancelStep, CloseBody, End, Park, RunStep, StartBody
from processors.engine.moves import RunStatus
from processors.engine.requests import BodyEnd, BodyStatus, SkipRequest, SleepRequest
from schemas.records import ErrorInfo, Status
from tests.unit.engine.stage import Stage, asked, returned

STOP = Cancel("maria", "ordered twice")
STOPPED = ErrorInfo("E_CANCELLED", "Cancelled", "the step was cancelled", retryable=False)
BODY_STOPPED = BodyEnd(BodyStatus.CANCELLED)
OTHER_WAY = ErrorInfo("E_NONDETERMINISTIC_REPLAY", "Diverged", "expected charge, seen refund", retryable=False)


def test_a_run_that_never_started_ends_at_once() -> None:
    run = Stage()
    run.do(STOP)
    assert run.told() == [("~run", Status.CLOSING), ("~run", Status.ENDED)]
    end = run.effect(End)
    assert end.status is RunStatus.CANCELLED
    assert end.error is not None
    assert end.error.message == "cancelled by maria: ordered twice"
    run.do(Claimed(owner_lost=False))
    assert run.effects == []


def test_a_running_step_and_the_body_may_clean_up() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    assert run.told() == [("~run", Status.CLOSING)]
    assert run.effect(CancelStep).item == "charge"
    assert "maria" in run.effect(CloseBody).cause
    assert run.effect(Arm) == Arm(CLOSE_TIMER, run.now + CLOSE_GRACE)
    run.turn(0, end=BODY_STOPPED)
    assert not run.has(End)
    run.failed("charge", STOPPED)
    assert run.told() == [("charge", Status.FAILED), ("~run", Status.ENDED)]
    assert run.effect(End).status is RunStatus.CANCELLED


def test_a_step_that_succeeds_while_closing_is_recorded() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    run.done("charge", '"paid"')
    assert run.told() == [("charge", Status.SUCCEEDED)]
    run.turn(0, end=BODY_STOPPED)
    assert run.effect(End).status is RunStatus.CANCELLED


def test_a_body_that_does_not_let_go_is_dropped_after_the_grace() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    run.wait(CLOSE_GRACE.total_seconds())
    run.do(Due(CLOSE_TIMER))
    assert run.told() == [("charge", Status.CANCELLED), ("~run", Status.ENDED)]
    assert run.effect(End).status is RunStatus.CANCELLED


def test_a_parked_run_ends_when_its_mail_is_read() -> None:
    run = Stage()
    run.begin(SleepRequest("nap", 300))
    assert run.has(Park)
    other = Stage(log=run.log)
    other.do(STOP)  # mail goes before the claim
    assert other.told() == [("~run", Status.CLOSING), ("nap", Status.CANCELLED), ("~run", Status.ENDED)]


def test_a_retry_is_not_started_once_the_run_is_cancelled() -> None:
    run = Stage()
    run.begin(asked("charge"), asked("other"))
    run.failed("charge", roll=0.1)
    run.do(STOP)
    run.wait(1)
    run.do(Due("charge"))
    assert run.effects == []
    run.failed("other", STOPPED)
    run.turn(0, end=BODY_STOPPED)
    assert ("charge", Status.CANCELLED) in run.told()


def test_a_turn_that_crosses_the_cancellation_starts_nothing() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.done("charge")
    run.do(STOP)
    run.turn(1, asked("ship"), SleepRequest("nap", 5), SkipRequest("no"), asked("begun", token="h3"))
    assert not run.has(RunStep)
    assert run.records == []
    assert run.effect(CancelStep).item == "begun"
    run.failed("begun", STOPPED)
    run.turn(1, end=BODY_STOPPED)
    assert run.effect(End).status is RunStatus.CANCELLED


def test_a_second_cancel_changes_nothing() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    run.do(Cancel("joao", "me too"))
    assert (run.records, run.effects) == ([], [])


def test_a_cancelled_run_whose_owner_was_lost_needs_no_body() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    other = run.reclaimed(owner_lost=True)
    assert not other.has(StartBody)
    assert other.effect(End).status is RunStatus.CANCELLED


def test_a_cancelled_run_whose_host_was_lost_needs_no_other() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    run.do(BodyLost("killed"))
    assert run.told() == [("charge", Status.LOST), ("charge", Status.CANCELLED), ("~run", Status.ENDED)]


def test_a_cancelled_run_is_never_blocked() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(STOP)
    run.do(Diverged(OTHER_WAY))
    assert not run.has(Block)
    assert run.effect(End).status is RunStatus.CANCELLED


def test_a_blocked_run_can_be_cancelled() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(Diverged(OTHER_WAY))
    other = Stage(log=run.log)
    other.do(STOP)
    assert other.effect(End).status is RunStatus.CANCELLED


def test_a_run_that_was_about_to_end_keeps_its_outcome() -> None:
    run = Stage()
    run.begin(asked("audit"))
    run.turn(0, end=returned('"paid"'))
    run.do(STOP)
    assert run.effects == []
    run.do(Diverged(OTHER_WAY))
    assert run.has(Block)
    run.do(STOP)
    assert run.effect(End) == End(RunStatus.SUCCEEDED, '"paid"', None)
