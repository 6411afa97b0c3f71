"""Sleeps and the timers of bodies: recorded when asked, parked over, delivered when due."""

from datetime import timedelta

import pytest

from processors.engine.commands import BodyLost, Due
from processors.engine.effects import Arm, Deliver, DropBody, Park, StartBody
from processors.engine.moves import RunStatus
from processors.engine.requests import SleepRequest, TimerRequest
from processors.engine.state import history
from schemas.records import Status
from tests.unit.engine.stage import Stage, asked


def test_a_sleep_parks_and_is_delivered_to_the_body_that_comes_back() -> None:
    run = Stage()
    run.begin(SleepRequest("nap", 30))
    due = run.now + timedelta(seconds=30)
    assert run.told() == [("nap", Status.OPENED)]
    assert run.effects == [Arm("nap", due), Park(RunStatus.SLEEPING, due), DropBody()]
    run.wait(30)
    other = run.reclaimed(owner_lost=False)
    assert other.effects == [StartBody()]
    assert [(one.name, one.item.after, one.outcome) for one in history(other.state)] == [("nap", 0, None)]
    other.turn(0, SleepRequest("nap", 30))
    assert other.told() == [("nap", Status.SUCCEEDED)]
    assert other.effect(Deliver).seq == 2


def test_a_run_that_wakes_for_mail_goes_on_sleeping_until_its_time() -> None:
    run = Stage()
    run.begin(SleepRequest("nap", 30))
    run.wait(10)
    other = run.reclaimed(owner_lost=False)
    other.turn(0, SleepRequest("nap", 30))
    assert other.records == []
    assert other.effect(Park).visible_at == other.now + timedelta(seconds=20)


def test_nothing_parks_before_everything_has_landed() -> None:
    run = Stage()
    run.begin(SleepRequest("nap", 30), asked("charge"))
    assert not run.has(Park)
    run.done("charge")
    assert not run.has(Park)  # the body has not answered yet
    run.turn(2)
    assert run.effect(Park).status is RunStatus.SLEEPING


def test_the_soonest_of_several_wakes_the_run() -> None:
    run = Stage()
    run.begin(SleepRequest("long", 300), TimerRequest("~t1", 20))
    assert run.effect(Park).visible_at == run.now + timedelta(seconds=20)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_sleep_of_nothing_is_over_at_once(seconds: float) -> None:
    run = Stage()
    run.begin(SleepRequest("nap", seconds))
    assert run.told() == [("nap", Status.OPENED), ("nap", Status.SUCCEEDED)]
    assert run.effect(Deliver).seq == 2


def test_an_armed_timer_is_delivered_while_a_step_runs() -> None:
    run = Stage()
    run.begin(TimerRequest("~t1", 5), asked("slow"))
    assert run.effect(Arm).item == "~t1"
    run.wait(5)
    run.do(Due("~t1"))
    assert run.effect(Deliver).item == "~t1"
    run.do(Due("~t1"))
    assert run.records == []


def test_a_timer_that_fires_before_the_body_is_back_is_told_once() -> None:
    """The history that the body plays would hold it, and a delivery would follow."""
    run = Stage()
    run.begin(TimerRequest("~t1", 5), asked("slow"))
    run.wait(5)
    run.do(BodyLost("killed"))
    run.do(Due("~t1"))
    assert run.records == []
    run.turn(0, TimerRequest("~t1", 5), asked("slow"))
    assert run.told() == [("~t1", Status.SUCCEEDED)]
    assert run.effect(Deliver).item == "~t1"


def test_a_timer_that_nobody_knows_is_ignored() -> None:
    run = Stage()
    run.begin(asked("slow"))
    run.do(Due("~t9"))
    run.do(Due("slow"))
    assert run.effects == []
