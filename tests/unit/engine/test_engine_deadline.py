"""A deadline that passes stops a run wherever it is: unborn, in a step, asleep, between two tries, blocked."""

from processors.engine.commands import Claimed, DeadlinePassed, Diverged, TooOld
from processors.engine.decide import CLOSE_GRACE, CLOSE_TIMER
from processors.engine.effects import Arm, CancelStep, CloseBody, End, RunStep, StartBody
from processors.engine.moves import RunStatus
from processors.engine.requests import BodyEnd, BodyStatus, SleepRequest
from schemas.records import ErrorInfo, Status
from tests.unit.engine.stage import START, Stage, asked, raised, returned

PASSED = DeadlinePassed(START)
STOPPED = ErrorInfo("E_CANCELLED", "Cancelled", "the step was cancelled", retryable=False)


def assert_over(run: Stage) -> None:
    end = run.effect(End)
    assert end.status is RunStatus.CANCELLED
    assert end.error is not None
    assert end.error.code == "E_DEADLINE"
    assert "2026-07-19T14:00:00.000+00:00" in end.error.message


def test_a_run_that_never_started_is_never_started() -> None:
    run = Stage()
    run.do(PASSED)
    assert_over(run)
    run.do(Claimed(owner_lost=False))
    assert not run.has(StartBody)


def test_a_run_whose_event_is_too_old_fails_and_is_never_started() -> None:
    run = Stage()
    run.do(TooOld(START))
    end = run.effect(End)
    assert (end.status, end.error.code if end.error else None) == (RunStatus.FAILED, "E_EVENT_TOO_OLD")
    run.do(Claimed(owner_lost=False))
    assert not run.has(StartBody)


def test_a_step_is_stopped_and_the_body_may_clean_up() -> None:
    run = Stage()
    run.begin(asked("extract"))
    run.do(PASSED)
    assert run.effect(CancelStep).item == "extract"
    assert "deadline" in run.effect(CloseBody).cause
    assert run.effect(Arm) == Arm(CLOSE_TIMER, run.now + CLOSE_GRACE)
    run.failed("extract", STOPPED)
    run.turn(0, end=BodyEnd(BodyStatus.CANCELLED))
    assert_over(run)


def test_tries_that_are_left_do_not_count() -> None:
    run = Stage()
    run.begin(asked("extract", most=1000))
    run.failed("extract")
    other = Stage(log=run.log)
    other.do(PASSED)
    assert_over(other)
    assert not other.has(RunStep)


def test_a_sleep_is_not_slept_out() -> None:
    run = Stage()
    run.begin(SleepRequest("nap", 300))
    other = Stage(log=run.log)
    other.do(PASSED)
    assert other.told() == [("~run", Status.CLOSING), ("nap", Status.CANCELLED), ("~run", Status.ENDED)]
    assert_over(other)


def test_a_blocked_run_is_over_too() -> None:
    run = Stage()
    run.begin(asked("extract"))
    run.do(Diverged(ErrorInfo("E_NONDETERMINISTIC_REPLAY", "Diverged", "another way", retryable=False)))
    other = Stage(log=run.log)
    other.do(PASSED)
    assert_over(other)


def test_an_owner_that_is_lost_while_the_run_closes_changes_nothing() -> None:
    run = Stage()
    run.begin(asked("extract"))
    run.do(PASSED)
    assert_over(run.reclaimed(owner_lost=True))


def test_an_outcome_that_was_decided_before_stays() -> None:
    run = Stage()
    run.begin(asked("audit"))
    run.turn(0, end=returned('"paid"'))
    run.do(PASSED)
    assert run.effects == []
    run.done("audit")
    assert run.effect(End) == End(RunStatus.SUCCEEDED, '"paid"', None)


def test_a_steps_own_error_of_that_code_is_a_failure() -> None:
    own = ErrorInfo("E_DEADLINE", "partner.TooLate", "the partner's deadline", retryable=False)
    run = Stage()
    run.begin(asked("extract"))
    run.failed("extract", own)
    run.turn(1, end=raised(own))
    assert run.effect(End).status is RunStatus.FAILED
