"""When a step is tried again, how long it waits, and when nobody tries it any more."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from processors.engine.commands import Due
from processors.engine.effects import Arm, Deliver, Park, RunStep
from processors.engine.moves import RunStatus
from processors.engine.state import Phase
from schemas.records import Status
from tests.unit.engine.stage import BROKEN, HOPELESS, Stage, asked


@pytest.mark.parametrize(
    ("failures", "roll", "seconds"),
    [(1, 0.0, 0.0), (1, 0.5, 0.5), (2, 0.5, 1.0), (3, 0.5, 2.0), (4, 0.25, 2.0), (20, 0.5, 150.0)],
)
def test_full_jitter_doubles_up_to_the_cap(failures: int, roll: float, seconds: float) -> None:
    run = Stage()
    run.begin(asked("charge", most=100))
    for _ in range(failures - 1):
        run.failed("charge", roll=0.0)
        run.do(Due("charge"))
    run.failed("charge", roll=roll)
    assert run.records[0].due == run.now + timedelta(seconds=seconds)


def test_base_and_cap_of_the_step_are_in_force() -> None:
    run = Stage()
    run.begin(asked("charge", base=10, cap=12, most=9))
    run.failed("charge", roll=1.0)
    assert run.item("charge").due == run.now + timedelta(seconds=10)
    run.wait(10)
    run.do(Due("charge"))
    run.failed("charge", roll=1.0)
    assert run.item("charge").due == run.now + timedelta(seconds=12)


@pytest.mark.parametrize(("wish", "seconds"), [(7.0, 7.0), (0.0, 0.0), (-3.0, 0.0), (100_000.0, 300.0)])
def test_the_wish_of_a_server_wins_up_to_the_cap(wish: float, seconds: float) -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.failed("charge", replace(BROKEN, retry_after=wish), roll=0.123)
    assert run.item("charge").due == run.now + timedelta(seconds=seconds)


def test_a_step_out_of_tries_is_delivered_as_failed() -> None:
    run = Stage()
    run.begin(asked("charge", most=2))
    run.failed("charge", roll=0.0)
    assert not run.records[0].final
    assert not run.has(Deliver)
    run.do(Due("charge"))
    assert run.effect(RunStep).attempt == 2
    run.failed("charge")
    assert run.records[0].final
    assert run.records[0].due is None
    assert run.effect(Deliver).error == BROKEN
    assert run.effect(Deliver).outcome is Status.FAILED


def test_an_error_that_no_retry_can_help_is_final_at_once() -> None:
    run = Stage()
    run.begin(asked("charge", most=5))
    run.failed("charge", HOPELESS)
    assert [(one.attempt, one.final) for one in run.log] == [(1, True)]


def test_a_long_wait_parks_and_a_short_one_is_waited_out_in_place() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.failed("charge", roll=0.1)
    assert run.effect(Arm).due == run.now + timedelta(seconds=0.1)
    assert not run.has(Park)
    run.wait(0.1)
    run.do(Due("charge"))
    run.failed("charge", roll=0.9)
    assert run.effect(Park).status is RunStatus.RETRYING


def test_a_timer_that_fires_early_is_armed_again() -> None:
    run = Stage()
    run.begin(asked("charge"), asked("other"))
    run.failed("charge", roll=0.9)
    run.wait(0.8999)
    run.do(Due("charge"))
    assert run.effects == [Arm("charge", run.item("charge").due or run.now)]
    run.wait(0.0001)
    run.do(Due("charge"))
    assert run.effect(RunStep).attempt == 2


def test_losses_never_exhaust_the_tries() -> None:
    run = Stage()
    run.begin(asked("charge", most=1))
    for _ in range(4):
        run = run.reclaimed(owner_lost=True)
        run.turn(0, asked("charge", most=1))
    assert [(one.status, one.attempt) for one in run.log] == [(Status.LOST, n) for n in (1, 2, 3, 4)]
    assert run.attempt("charge") == 5
    run.done("charge")
    assert run.records[0].attempt == 5


def test_failures_before_a_loss_still_count() -> None:
    run = Stage()
    run.begin(asked("charge", most=2))
    run.failed("charge", roll=0.0)
    run.do(Due("charge"))
    other = run.reclaimed(owner_lost=True)
    other.turn(0, asked("charge", most=2))
    assert [(one.status, one.attempt) for one in other.log] == [(Status.FAILED, 1), (Status.LOST, 2)]
    other.failed("charge")
    assert (other.records[0].attempt, other.records[0].final) == (3, True)


def test_a_retry_that_was_not_due_was_not_in_flight() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.failed("charge", roll=0.9)
    other = run.reclaimed(owner_lost=True)
    other.turn(0, asked("charge"))
    assert other.records == []
    assert other.effect(Park).status is RunStatus.RETRYING
    assert other.item("charge").phase is Phase.RETRYING


def test_a_due_retry_starts_when_its_run_comes_back() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.failed("charge", roll=0.9)
    run.wait(2)
    other = run.reclaimed(owner_lost=False)
    other.turn(0, asked("charge"))
    assert other.effect(RunStep).attempt == 2
    assert other.records == []
