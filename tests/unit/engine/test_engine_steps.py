"""A run that goes well: steps one after the other, at once, skipped, left alone, and how it ends."""

from processors.engine.commands import Claimed, Done
from processors.engine.effects import Arm, CancelStep, Deliver, DropBody, End, Park, RunStep, StartBody
from processors.engine.moves import RunStatus
from processors.engine.requests import (
    BodyEnd,
    BodyStatus,
    CancelRequest,
    SkipRequest,
    SleepRequest,
    StepRequest,
    TimerRequest,
)
from processors.engine.state import Phase
from schemas.records import ErrorInfo, Kind, Status
from tests.unit.engine.stage import BROKEN, HOPELESS, RUN, Stage, asked, raised, returned


def test_three_steps_are_three_records_and_an_end() -> None:
    run = Stage()
    run.do(Claimed(owner_lost=False))
    assert run.effects == [StartBody()]
    for place, name in enumerate(("reserve", "charge", "book")):
        run.turn(place, asked(name))
        assert run.effects == [RunStep(name, 1, "x1.1", f"{RUN}:{name}:g1", 10.0)]
        run.done(name, f'"{name}"')
        assert run.effect(Deliver).seq == place + 1
    run.turn(3, end=returned('"all"'))
    assert run.effects == [End(RunStatus.SUCCEEDED, '"all"', None), DropBody()]
    assert [(one.item, one.status, one.attempt, one.after, one.final) for one in run.log] == [
        ("reserve", Status.SUCCEEDED, 1, 0, True),
        ("charge", Status.SUCCEEDED, 1, 1, True),
        ("book", Status.SUCCEEDED, 1, 2, True),
        ("~run", Status.ENDED, 0, 3, True),
    ]
    assert [one.value for one in run.log] == ['"reserve"', '"charge"', '"book"', '"all"']
    assert {one.recorded_at for one in run.log} == {run.now}


def test_a_first_attempt_that_the_host_has_started_is_not_run_again() -> None:
    run = Stage()
    run.begin(asked("charge", token="h7"))
    assert run.effects == []
    run.done("charge")
    assert run.told() == [("charge", Status.SUCCEEDED)]


def test_an_outcome_of_another_life_is_ignored() -> None:
    run = Stage()
    run.begin(asked("charge", token="h7"))
    run.do(Done("charge", 1, "h6", '"stale"', 0.1))
    run.do(Done("charge", 2, "h7", '"stale"', 0.1))
    run.do(Done("refund", 1, "h7", '"stale"', 0.1))
    assert run.log == []
    run.done("charge")
    run.do(Done("charge", 1, "h7", '"again"', 0.1))
    assert [one.value for one in run.log] == ["null"]


def test_parallel_steps_are_delivered_in_the_order_of_their_records() -> None:
    run = Stage()
    run.begin(asked("left"), asked("right"))
    run.done("right")
    assert run.effect(Deliver).item == "right"
    run.done("left")
    assert run.effect(Deliver).seq == 2
    run.turn(1)
    assert not run.effects  # the second delivery is still unanswered
    run.turn(2, end=returned())
    assert run.has(End)


def test_a_retrying_step_waits_in_place_while_its_sibling_runs() -> None:
    run = Stage()
    run.begin(asked("left"), asked("right"))
    run.failed("left", roll=0.9)
    assert run.effect(Arm).item == "left"
    assert not run.has(Park)
    run.done("right")
    run.turn(2)
    assert run.effect(Park).status is RunStatus.RETRYING
    assert run.effect(Park).visible_at == run.item("left").due


def test_a_skipped_step_takes_no_attempt_and_is_delivered() -> None:
    run = Stage()
    run.begin(SkipRequest("notify"))
    assert [(one.status, one.attempt, one.final) for one in run.log] == [(Status.SKIPPED, 0, True)]
    assert run.effect(Deliver).outcome is Status.SKIPPED
    run.turn(1, end=returned())
    assert run.has(End)


def test_the_error_of_a_body_is_the_error_of_its_run() -> None:
    run = Stage()
    run.begin(asked("charge", most=1))
    run.failed("charge", HOPELESS)
    run.turn(1, end=raised())
    assert run.effect(End) == End(RunStatus.FAILED, None, HOPELESS)


def test_a_step_that_nobody_awaits_settles_before_the_end() -> None:
    run = Stage()
    run.begin(asked("audit"), asked("charge"))
    run.done("charge")
    run.turn(1, end=returned('"paid"'))
    assert run.told() == [("~run", Status.CLOSING)]
    assert run.effects == []
    run.done("audit")
    assert run.told() == [("audit", Status.SUCCEEDED), ("~run", Status.ENDED)]
    assert not run.has(Deliver)
    assert run.effect(End) == End(RunStatus.SUCCEEDED, '"paid"', None)


def test_a_step_that_nobody_awaits_is_not_tried_again_while_closing() -> None:
    run = Stage()
    run.begin(asked("audit"))
    run.turn(0, end=returned())
    run.failed("audit")
    assert run.told() == [("audit", Status.FAILED), ("~run", Status.ENDED)]
    assert run.records[0].final
    assert run.effect(End).status is RunStatus.SUCCEEDED


def test_what_waits_at_the_end_is_recorded_as_cancelled() -> None:
    run = Stage()
    run.begin(asked("audit"), SleepRequest("later", 60), asked("charge"))
    run.failed("audit")
    run.done("charge")
    run.turn(3, end=returned())
    assert run.told() == [
        ("audit", Status.CANCELLED),
        ("later", Status.CANCELLED),
        ("~run", Status.ENDED),
    ]


def test_an_abandoned_step_is_told_to_stop_and_its_late_success_stays_undelivered() -> None:
    run = Stage()
    run.begin(asked("slow"), TimerRequest("~t1", 5))
    run.wait(6)
    run.turn(1, CancelRequest("slow"))
    assert run.told() == [("slow", Status.CANCELLED)]
    assert run.effect(CancelStep) == CancelStep("slow")
    run.done("slow", '"too late"')
    assert run.told() == [("slow", Status.SUCCEEDED)]
    assert not run.has(Deliver)
    assert run.item("slow").phase is Phase.ABANDONED
    assert run.item("slow").outcome is None


def test_a_late_failure_of_an_abandoned_step_leaves_no_trace() -> None:
    run = Stage()
    run.begin(asked("slow"), asked("quick"))
    run.done("quick")
    run.turn(1, CancelRequest("slow"))
    run.failed("slow")
    assert run.told()[:1] == [("~run", Status.BLOCKED)]  # the body waits for nothing any more


def test_an_abandoned_timer_and_a_settled_step_need_no_cancelling() -> None:
    run = Stage()
    run.begin(TimerRequest("~t1", 5), asked("quick"))
    run.done("quick")
    run.turn(2, CancelRequest("~t1"), CancelRequest("quick"), CancelRequest("unheard-of"), asked("next"))
    assert run.told() == [("~t1", Status.CANCELLED)]
    assert not run.has(CancelStep)


def test_an_item_that_was_asked_for_earlier_keeps_its_place() -> None:
    run = Stage()
    run.begin(asked("left"), asked("right"))
    run.done("left")
    other = run.reclaimed(owner_lost=True)
    other.turn(1, StepRequest("right", 10.0, after=0), asked("next"))
    assert [(one.item, one.status, one.after) for one in other.log[1:]] == [
        ("right", Status.LOST, 0),
        ("next", Status.LOST, 1),
    ]


def test_a_body_that_ends_without_saying_why_still_has_an_error() -> None:
    failed, cancelled = Stage(), Stage()
    failed.begin(asked("audit"))
    failed.turn(0, end=BodyEnd(BodyStatus.FAILED))
    failed.done("audit")
    assert failed.effect(End).status is RunStatus.FAILED
    assert failed.effect(End).error is not None
    cancelled.begin(asked("audit"))
    cancelled.turn(0, end=BodyEnd(BodyStatus.CANCELLED, error=BROKEN))
    cancelled.done("audit")
    assert cancelled.effect(End).status is RunStatus.CANCELLED


def test_the_outcome_is_the_same_whether_something_was_in_flight_or_not() -> None:
    told = ErrorInfo("E_CANCELLED", "Cancelled", "raised by the author", retryable=False)
    for end in (BodyEnd(BodyStatus.CANCELLED), raised(told), raised(), returned("1")):
        quiet, busy = Stage(), Stage()
        quiet.begin(SkipRequest("nothing"))
        quiet.turn(1, end=end)
        busy.begin(asked("audit"))
        busy.turn(0, end=end)
        busy.done("audit")
        assert quiet.effect(End) == busy.effect(End)


def test_kinds_of_records_follow_the_requests() -> None:
    run = Stage()
    run.begin(SleepRequest("nap", 60), TimerRequest("~t1", 60), SkipRequest("no"))
    assert [one.kind for one in run.log] == [Kind.SLEEP, Kind.TIMER, Kind.STEP]
