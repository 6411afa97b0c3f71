"""The rules of chaos find what they are there for: one thing is wrong in a clean history, and that rule says so."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.run_events import RunEvent
from tests.chaos.checks import CHECKS, Evidence, check
from tests.chaos.history import Attempt, History, Run
from tests.chaos.ledger import Ledger
from tests.chaos.orders import Order


def order(number: int, workflow: str = "lane", **more: str) -> Order:
    return Order(f"k{number}", workflow, "kafka", "l1", 1.0, event_id=f"e{number}", accepted=1.0, **more)  # type: ignore[arg-type]


def run(number: int, state: str = "succeeded", workflow: str = "lane") -> Run:
    at = 10.0 * number
    result = json.dumps({"first": f"t{number}"}) if state == "succeeded" else None
    lane = (
        {"lane": "q_lane/l1", "lane_seq": number} if workflow == "lane" else {"lane": "q_default/x", "lane_seq": None}
    )
    return Run(
        run_id=f"run_{number}",
        workflow=f"wf_{workflow}",
        state=state,
        key=f"k{number}",
        event_id=f"e{number}",
        created=at,
        started=at + 1,
        ended=at + 2,
        result=result,
        error_code=None,
        **lane,
    )


def attempt(number: int, seq: int = 1, tried: int = 1, status: str = "succeeded") -> Attempt:
    token = json.dumps(f"t{number}") if status == "succeeded" else None
    key = f"run_{number}:first:g1"
    return Attempt(f"run_{number}", seq, "step", "first", tried, status, key, None, token, 1.0, None)


def event(number: int, state: str = "succeeded") -> RunEvent:
    return RunEvent(
        run_id=f"run_{number}", project_id="dev", workflow_id="w", version="1", state=state, occurred_at="", sequence=2
    )


@pytest.fixture
def clean(tmp_path: Path) -> Evidence:
    """Two runs of one lane, the second of which lost an attempt after its effect; one run that fails as it should."""
    lines = ["began\t1\trun_1:first:g1\tt1", "effect\t2\trun_1:first:g1\tt1"]
    lines += ["began\t3\trun_2:first:g1\tlost", "effect\t4\trun_2:first:g1\tlost"]
    lines += ["began\t5\trun_2:first:g1\tt2", "effect\t6\trun_2:first:g1\tt2", "began\t7\thalf a li"]
    (tmp_path / "77-abc.log").write_text("\n".join(lines))
    ledger = Ledger(tmp_path)
    ledger.read()
    attempts = [attempt(1), attempt(2, 1, 1, "lost"), attempt(2, 2, 2)]
    runs = [run(1), run(2), run(3, "failed", "declined")]
    events = [event(1), event(2), event(3, "failed")]
    history = History(runs, attempts, events, [("run_3", "E_CARD_DECLINED")])
    heard = {one.id: 2 for one in events}
    return Evidence([order(1), order(2), order(3, "declined")], history, ledger, heard)


def test_a_clean_history_has_no_violation(clean: Evidence) -> None:
    assert check(clean) == []


def unaccepted(seen: Evidence) -> None:
    seen.orders[0].accepted = None


def missing_run(seen: Evidence) -> None:
    for part in (seen.history.runs, seen.history.announced):
        part.pop(2)
    seen.history.dead_letters.clear()


def second_run(seen: Evidence) -> None:
    twin = run(4, workflow="declined", state="failed")
    twin.key = "k3"
    seen.history.runs.append(twin)


def stranger(seen: Evidence) -> None:
    seen.history.runs.append(run(9, workflow="quick"))


def other_run_than_promised(seen: Evidence) -> None:
    seen.orders[0].run_id = "run_7"


def alive(seen: Evidence) -> None:
    seen.history.runs[0].state = "running"


def condemned(seen: Evidence) -> None:
    seen.history.runs[0].state = "failed"


def letter_of_nobody(seen: Evidence) -> None:
    seen.history.dead_letters.append(("run_1", "E_STEP_FAILED"))


def effect_missing(seen: Evidence) -> None:
    seen.ledger.efforts["t1"].applied = None


def repeated_without_a_word(seen: Evidence) -> None:
    seen.history.attempts[1].status = "cancelled"


def unknown_effect(seen: Evidence) -> None:
    del seen.history.attempts[0]


def other_result(seen: Evidence) -> None:
    seen.history.runs[0].result = json.dumps({"first": "t2"})


def hole(seen: Evidence) -> None:
    seen.history.attempts[2].number = 3


def succeeded_twice(seen: Evidence) -> None:
    seen.history.attempts[1].status = "succeeded"
    seen.history.attempts[1].result = json.dumps("lost")


def record_missing(seen: Evidence) -> None:
    seen.history.attempts[2].seq = 3


def overlap(seen: Evidence) -> None:
    seen.history.runs[1].started = 11.5


def out_of_turn(seen: Evidence) -> None:
    seen.history.runs[1].lane_seq = 3


def slot_held(seen: Evidence) -> None:
    seen.history.slots_held = 1


def lane_open(seen: Evidence) -> None:
    seen.history.lanes_open.append("l1")


def not_announced(seen: Evidence) -> None:
    seen.history.announced.pop()


def announced_twice(seen: Evidence) -> None:
    seen.history.announced.append(event(1))


def not_heard(seen: Evidence) -> None:
    seen.heard.pop(event(1).id)  # type: ignore[attr-defined]


def heard_of_nothing(seen: Evidence) -> None:
    seen.heard["rev_9_2"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("harm", "rule"),
    [
        (unaccepted, "never_accepted"),
        (missing_run, "accepted_is_one_run"),
        (second_run, "accepted_is_one_run"),
        (stranger, "accepted_is_one_run"),
        (other_run_than_promised, "accepted_is_one_run"),
        (alive, "every_run_ends_as_expected"),
        (condemned, "every_run_ends_as_expected"),
        (letter_of_nobody, "failures_are_dead_letters_once"),
        (effect_missing, "committed_steps_have_their_effect"),
        (repeated_without_a_word, "effects_repeat_only_where_told"),
        (unknown_effect, "effects_repeat_only_where_told"),
        (other_result, "results_are_those_of_the_steps"),
        (hole, "attempts_are_numbered_without_holes"),
        (succeeded_twice, "a_step_succeeds_once"),
        (record_missing, "records_are_numbered_without_holes"),
        (overlap, "lanes_keep_their_order"),
        (out_of_turn, "lanes_keep_their_order"),
        (slot_held, "nothing_is_held"),
        (lane_open, "nothing_is_held"),
        (not_announced, "ends_are_announced_once"),
        (announced_twice, "ends_are_announced_once"),
        (not_heard, "announcements_reach_the_topic"),
        (heard_of_nothing, "announcements_reach_the_topic"),
    ],
)
def test_what_is_wrong_is_named(clean: Evidence, harm: Callable[[Evidence], None], rule: str) -> None:
    harmed = replace(clean, history=deepcopy(clean.history), orders=deepcopy(clean.orders), heard=dict(clean.heard))
    harm(harmed)
    assert rule in {violation.rule for violation in check(harmed)}


def test_every_rule_is_shown_to_fail() -> None:
    (mark,) = test_what_is_wrong_is_named.pytestmark  # type: ignore[attr-defined]
    assert {rule for _, rule in mark.args[1]} == set(CHECKS)
