"""Owners and step hosts that go away, and bodies that cannot go on."""

import pytest

from processors.engine.commands import BodyLost, Cancel, Claimed, Command, Diverged, Done, Due, Failed, Turn
from processors.engine.decide import decide
from processors.engine.effects import Block, Deliver, DropBody, End, RunStep, StartBody
from processors.engine.moves import RunStatus
from processors.engine.requests import SleepRequest
from processors.engine.state import MOST_CRASHES, Phase, fold, history
from schemas.records import ErrorInfo, Status
from tests.unit.engine.stage import BROKEN, HOPELESS, RUN, START, Stage, asked, raised, returned

OTHER_WAY = ErrorInfo("E_NONDETERMINISTIC_REPLAY", "Diverged", "expected charge, seen refund", retryable=False)


def test_after_a_lost_owner_the_attempt_in_flight_is_recorded_and_the_next_number_runs() -> None:
    run = Stage()
    run.begin(asked("reserve"))
    run.done("reserve", '"r1"')
    run.turn(1, asked("charge"))
    other = run.reclaimed(owner_lost=True)
    assert other.effects == [StartBody()]
    assert [(one.name, one.outcome) for one in history(other.state)] == [("reserve", None)]
    other.turn(0, asked("reserve"))  # whether its body had heard the outcome, nobody knows
    assert other.effect(Deliver) == Deliver(1, "reserve", Status.SUCCEEDED, '"r1"', None, run.now)
    assert other.records == []
    other.turn(1, asked("charge"))
    assert [(one.item, one.status, one.attempt, one.final) for one in other.records] == [
        ("charge", Status.LOST, 1, False)
    ]
    assert other.effect(RunStep).attempt == 2
    other.done("charge")
    assert other.effect(Deliver).seq == 3


def test_a_run_that_was_given_back_loses_nothing() -> None:
    run = Stage()
    run.begin(asked("reserve"))
    run.done("reserve")
    other = run.reclaimed(owner_lost=False)
    other.turn(1, asked("charge"))
    assert other.records == []
    assert other.effect(RunStep).attempt == 1


def test_only_the_first_turn_after_a_lost_owner_is_guessed_about() -> None:
    run = Stage()
    run.begin(asked("reserve"))
    other = run.reclaimed(owner_lost=True)
    other.turn(0, asked("reserve"))
    other.done("reserve")
    other.turn(2, asked("charge"))
    assert other.records == []
    assert other.effect(RunStep) == RunStep("charge", 1, "x1.1", f"{RUN}:charge:g1", 10.0)


def test_a_dead_host_loses_what_was_in_flight_and_the_body_comes_back() -> None:
    run = Stage()
    run.begin(asked("left"), asked("right"), asked("retried"))
    run.failed("retried", roll=0.0)
    run.do(BodyLost("killed"))
    assert run.told() == [("left", Status.LOST), ("right", Status.LOST)]
    assert run.effects == [StartBody()]
    run.do(Done("left", 1, "x1.1", "1", 0.1))
    assert run.records == []
    run.turn(0, asked("left"), asked("right"), asked("retried"), asked("new"))
    assert run.told() == [("new", Status.LOST)]  # the host may have started it before it died
    assert [(one.item, one.attempt) for one in run.effects if isinstance(one, RunStep)] == [
        ("left", 2),
        ("right", 2),
        ("retried", 2),
        ("new", 2),
    ]


def test_an_attempt_that_had_not_begun_was_never_in_flight() -> None:
    """A retry that waits for the thread of the attempt before it; a step that waits for leave."""
    run = Stage()
    run.begin(asked("retried"), asked("lost"), asked("waits"), asked("flies"))
    run.failed("retried", roll=0.0)
    run.do(Due("retried"))
    run.do(BodyLost("killed", unbegun=frozenset({"retried", "lost", "waits"})))
    assert run.told() == [("flies", Status.LOST)]
    run.turn(0, asked("retried"), asked("lost"), asked("waits"), asked("flies"))
    assert run.records == []
    assert {one.item: one.attempt for one in run.effects if isinstance(one, RunStep)} == {
        "retried": 2,
        "lost": 1,
        "waits": 1,
        "flies": 2,
    }


def test_a_host_that_ends_by_another_runs_doing_counts_for_nothing() -> None:
    run = Stage()
    run.begin(asked("neighbour"))
    for _ in range(MOST_CRASHES + 1):
        run.do(BodyLost("another run blocks the loop", suspected=False))
        assert run.effects == [StartBody()]
        run.turn(0, asked("neighbour"))
    assert run.state.crashes == 0


def test_a_run_that_kills_every_host_fails_in_the_end() -> None:
    run = Stage()
    run.begin(asked("poison"))
    for _ in range(MOST_CRASHES - 1):
        run.do(BodyLost("killed by SIGSEGV"))
        assert run.effects == [StartBody()]
        run.turn(0, asked("poison"))
    run.do(BodyLost("killed by SIGSEGV"))
    error = run.effect(End).error
    assert error is not None
    assert error.code == "E_WORKER_CRASH_LOOP"
    assert "SIGSEGV" in error.message
    assert run.told()[-1] == ("~run", Status.ENDED)


def test_an_attempt_that_lands_clears_the_run() -> None:
    run = Stage()
    run.begin(asked("first"))
    for _ in range(MOST_CRASHES - 1):
        run.do(BodyLost("killed"))
        run.turn(0, asked("first"))
    run.done("first")
    run.turn(run.state.seq, asked("second"))
    run.do(BodyLost("killed"))
    assert run.effects == [StartBody()]


def test_a_host_that_dies_for_the_last_time_while_closing_leaves_the_outcome_as_it_was() -> None:
    run = Stage()
    run.begin(asked("poison"), asked("charge"))
    for _ in range(MOST_CRASHES - 1):
        run.do(BodyLost("killed"))
        run.turn(0, asked("poison"), asked("charge"))
    run.turn(0, end=returned('"paid"'))
    run.do(BodyLost("killed"))
    assert run.effect(End) == End(RunStatus.SUCCEEDED, '"paid"', None)


def test_a_host_that_dies_while_closing_brings_back_what_settles() -> None:
    run = Stage()
    run.begin(asked("audit"))
    run.turn(0, end=returned('"paid"'))
    run.do(BodyLost("killed"))
    assert run.effects == [StartBody()]
    run.turn(0, asked("audit"), end=returned('"other"'))
    assert run.effect(RunStep).attempt == 2
    run.done("audit")
    assert run.effect(End) == End(RunStatus.SUCCEEDED, '"paid"', None)


def test_what_settled_while_closing_is_no_delivery_to_the_body_that_comes_back() -> None:
    run = Stage()
    run.begin(asked("one"), asked("two"), asked("three"))
    run.done("one")
    run.turn(1, end=raised())
    run.done("two")
    other = run.reclaimed(owner_lost=True)
    assert [(one.name, one.outcome is not None) for one in history(other.state)] == [("one", True), ("two", False)]
    other.turn(1, asked("two"), asked("three"), end=raised())
    assert [(one.item, one.attempt) for one in other.effects if isinstance(one, RunStep)] == [("three", 2)]
    other.done("three")
    assert other.effect(End).status is RunStatus.FAILED


def test_outcomes_that_the_body_may_not_have_heard_are_told_again_in_their_order() -> None:
    """It may have ended with the first of them: played as history, the others would be left over."""
    run = Stage()
    run.begin(asked("one"), asked("two"), asked("three", most=1), asked("four"))
    run.done("two", '"2"')
    run.failed("three", HOPELESS)
    run.done("one", '"1"')
    other = run.reclaimed(owner_lost=True)
    assert [(one.name, one.outcome) for one in history(other.state)] == [("two", None), ("three", None), ("one", None)]
    other.turn(0, asked("one"), asked("two"), asked("three", most=1), asked("four"))
    told = [(one.seq, one.item, one.value) for one in other.effects if isinstance(one, Deliver)]
    assert told == [(1, "two", '"2"'), (2, "three", None), (3, "one", '"1"')]
    assert other.told() == [("four", Status.LOST)]
    other.turn(1)
    other.turn(2, end=raised())
    assert other.told() == [("~run", Status.CLOSING)]
    assert other.records[0].after == 2
    again = other.reclaimed(owner_lost=True)
    assert [one.name for one in history(again.state) if one.outcome] == ["two", "three"]
    again.turn(2, asked("one"), asked("four"), end=raised())
    assert not again.has(Deliver)
    again.done("four")
    assert again.effect(End) == End(RunStatus.FAILED, None, HOPELESS)


def test_what_is_asked_for_after_an_outcome_of_the_lost_owner_may_have_been_in_flight_as_well() -> None:
    run = Stage()
    run.begin(asked("reserve"))
    run.done("reserve")
    other = run.reclaimed(owner_lost=True)
    other.turn(0, asked("reserve"))
    assert other.state.guesses(1)
    other.turn(1, asked("charge"))
    assert other.told() == [("charge", Status.LOST)]
    other.done("charge")
    assert not other.state.guesses(other.state.seq)
    other.turn(other.state.seq, asked("ship"))
    assert other.records == []


def test_divergence_blocks_the_run_and_loses_what_was_in_flight() -> None:
    run = Stage()
    run.begin(asked("charge"), SleepRequest("nap", 60))
    run.do(Diverged(OTHER_WAY))
    assert run.told() == [("charge", Status.LOST), ("~run", Status.BLOCKED)]
    assert run.effects == [Block(OTHER_WAY), DropBody()]
    for command in (Done("charge", 1, "x1.1", "1", 0.1), Due("nap"), Turn(0, [], returned()), BodyLost("late")):
        run.do(command)
        assert (run.records, run.effects) == ([], [])


def test_a_blocked_run_that_is_claimed_stays_blocked() -> None:
    run = Stage()
    run.begin(asked("charge"))
    run.do(Diverged(OTHER_WAY))
    other = run.reclaimed(owner_lost=False)
    assert other.records == []
    assert other.effects == [Block(OTHER_WAY)]


def test_f08_a_body_that_waits_for_what_only_it_can_bring_is_blocked() -> None:
    run = Stage()
    run.begin()
    assert run.effect(Block).error.code == "E_BODY_STUCK"
    assert run.told() == [("~run", Status.BLOCKED)]


def test_a_bundle_that_cannot_be_imported_blocks_before_anything_ran() -> None:
    run = Stage()
    run.do(Claimed(owner_lost=False))
    run.do(Diverged(ErrorInfo("E_BUNDLE_IMPORT", "ImportError", "no module named api", retryable=False)))
    assert run.told() == [("~run", Status.BLOCKED)]


def test_a_record_out_of_turn_is_refused() -> None:
    run = Stage()
    run.begin(asked("a"))
    run.done("a")
    run.turn(1, asked("b"))
    run.done("b")
    with pytest.raises(ValueError, match="record 2 after 0"):
        fold(RUN, 1, run.log[1:])


COMMANDS: list[Command] = [
    Claimed(owner_lost=False),
    Claimed(owner_lost=True),
    Turn(0, [asked("charge")], None),
    Turn(0, [], returned()),
    Done("charge", 1, "x1.1", "1", 0.1),
    Failed("charge", 1, "x1.1", BROKEN, 0.1),
    Due("charge"),
    Due("~close"),
    BodyLost("killed"),
    Diverged(OTHER_WAY),
    Cancel("ops", "why not"),
]


def stages() -> dict[str, Stage]:
    """A run in each of the situations that commands can meet."""
    made = {name: Stage() for name in ("new", "starting", "running", "retrying", "parked", "closing", "cancelling")}
    for name, run in made.items():
        if name != "new":
            run.do(Claimed(owner_lost=False))
        if name not in {"new", "starting"}:
            run.turn(0, asked("charge"))
    made["retrying"].failed("charge", roll=0.1)
    made["parked"].failed("charge", roll=0.9)
    made["closing"].turn(0, end=returned())
    made["cancelling"].do(Cancel("ops", "stop"))
    made["blocked"], made["ended"] = Stage(), Stage()
    made["blocked"].begin()
    made["ended"].do(Cancel("ops", "stop"))
    return made


@pytest.mark.parametrize("situation", list(stages()))
@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: type(one).__name__)
def test_every_command_can_meet_every_situation(situation: str, command: Command) -> None:
    run = stages()[situation]
    run.wait(1)
    run.do(command)  # checks the log, the fold and the counters
    if situation == "ended":
        assert (run.records, run.effects) == ([], [])
    if isinstance(command, Cancel) and situation not in {"starting", "running", "retrying", "ended"}:
        assert run.state.ended is not None or situation in {"closing", "cancelling"}


def test_an_ended_run_answers_nothing() -> None:
    run = Stage()
    run.do(Cancel("ops", "stop"))
    assert decide(run.state, Claimed(owner_lost=True), START, 0.5).effects == []


def test_phases_of_a_fold_never_say_in_flight() -> None:
    run = Stage()
    run.begin(asked("a"), asked("b"))
    run.failed("a", roll=0.0)
    run.do(Due("a"))
    assert run.item("a").phase is Phase.IN_FLIGHT
    assert fold(RUN, 1, run.log).items["a"].phase is Phase.RETRYING


def test_the_queue_says_how_many_hosts_a_run_may_end() -> None:
    run = Stage()
    run.state.most_crashes = 4
    run.begin(asked("poison"))
    for _ in range(3):
        run.do(BodyLost("killed"))
        assert run.effects == [StartBody()]
        run.turn(0, asked("poison"))
    run.do(BodyLost("killed"))
    assert run.effect(End).status is RunStatus.FAILED


def test_hosts_that_were_shared_condemn_nobody() -> None:
    run = Stage()
    run.state.most_crashes = 1
    run.begin(asked("neighbour"))
    for _ in range(2):
        run.do(BodyLost("another run ended it"))
        assert run.effects == [StartBody()]
        run.turn(0, asked("neighbour"))
    run.do(BodyLost("and this one was alone"))
    assert run.effect(End).status is RunStatus.FAILED
