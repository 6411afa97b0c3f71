"""Where a run is, in words."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from processors.engine.moves import TERMINAL, RunStatus
from processors.gateway.sentences import Place, sentence, standing_at
from processors.ports.run_queries import AcceptedRun, Attempt, QueuePlace, Run
from schemas.records import ErrorInfo

NOW = datetime(2026, 7, 19, 14, 0, tzinfo=UTC)


def run(state: RunStatus, **changes: object) -> Run:
    fields = dict.fromkeys(Run.__dataclass_fields__)
    fields |= {
        "run_id": "run_1",
        "state": state.value,
        "queue_id": "q_x",
        "lane": "cust_1",
        "generation": 1,
        "cancel_requested": False,
        "ended_at": NOW if state in TERMINAL else None,
        "visible_at": NOW + timedelta(minutes=5),
    }
    return Run(**(fields | changes))  # type: ignore[arg-type]


def attempt(seq: int, step: str, status: str, *, code: str | None = None, generation: int = 1) -> Attempt:
    fields = dict.fromkeys(Attempt.__dataclass_fields__)
    fields |= {
        "generation": generation,
        "seq": seq,
        "step_id": step,
        "status": status,
        "attempt": seq,
        "error_code": code,
    }
    return Attempt(**fields)  # type: ignore[arg-type]


FAILED = [attempt(1, "create", "succeeded"), attempt(2, "provision-db", "failed", code="E_UPSTREAM_503")]


@pytest.mark.parametrize(
    ("state", "attempts", "words"),
    [
        (RunStatus.GRANTED, [], "waits for an executor"),
        (RunStatus.RUNNING, [], "first step"),
        (RunStatus.RUNNING, FAILED[:1], "'create'"),
        (RunStatus.RUNNING, FAILED, "being tried again"),
        (RunStatus.RUNNING, [attempt(1, "~run", "closing", code="E_CANCELLED")], "being ended (E_CANCELLED)"),
        (RunStatus.SLEEPING, [attempt(1, "cooldown", "opened")], "'cooldown' until 2026-07-19 14:05:00 UTC"),
        (RunStatus.RETRYING, FAILED, "failed with E_UPSTREAM_503 at attempt 2; it is tried again at 2026-07-19 14:05"),
        (RunStatus.RETRYING, [attempt(1, "create", "lost")], "lost with its worker"),
        (RunStatus.WAITING, [], "from outside"),
        (RunStatus.COMPENSATING, FAILED, "being undone"),
        (RunStatus.AWAITING_CONFIRMATION, FAILED, "a person has to say"),
        (RunStatus.BLOCKED, [attempt(1, "~run", "blocked", code="E_DUPLICATE_STEP_ID")], "E_DUPLICATE_STEP_ID"),
        (RunStatus.SUCCEEDED, FAILED, "Succeeded."),
        (RunStatus.FAILED, FAILED, "start it again with a new key"),
        (RunStatus.FAILED, FAILED[:1], "outside any step"),
        (RunStatus.CANCELLED, FAILED, "while at the step 'provision-db'"),
        (RunStatus.COMPENSATED, FAILED, "was undone"),
        (RunStatus.COMPENSATION_FAILED, FAILED, "partial effects"),
    ],
)
def test_every_state_says_where_the_run_is(state: RunStatus, attempts: list[Attempt], words: str) -> None:
    assert words in sentence(run(state), Place(NOW, attempts))


def test_every_state_has_words() -> None:
    for state in RunStatus:
        assert sentence(run(state), Place(NOW)).endswith(".")


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (None, "in the queue q_x"),
        (QueuePlace(3, 25, 2), "2 before it in the lane 'cust_1'"),
        (QueuePlace(3, 25, 1000), "1000 or more before it"),
        (QueuePlace(25, 25, 0), "25 of 25 run"),
        (QueuePlace(3, 25, 0), "granted next"),
    ],
)
def test_a_pending_run_says_why_it_waits(queue: QueuePlace | None, words: str) -> None:
    assert words in sentence(run(RunStatus.PENDING), Place(NOW, queue=queue))


def test_a_deadline_is_told_while_the_run_lives_and_when_it_ended_the_run() -> None:
    deadline = NOW + timedelta(minutes=30)
    for state in set(RunStatus) - TERMINAL:
        assert "Its deadline is 2026-07-19 14:30:00 UTC." in sentence(run(state, deadline_at=deadline), Place(NOW))
    over = run(RunStatus.CANCELLED, deadline_at=deadline, error_code="E_DEADLINE")
    assert sentence(over, Place(NOW, FAILED)) == "Cancelled by its deadline while at the step 'provision-db'."


def test_an_accepted_run_says_since_when() -> None:
    accepted = AcceptedRun("run_1", "evt_1", "k1", NOW - timedelta(seconds=3))
    assert "3.0 s ago" in sentence(accepted, Place(NOW))


def test_a_run_that_killed_its_hosts_says_in_which_step() -> None:
    lost = [
        attempt(1, "a", "succeeded"),
        attempt(2, "b", "lost"),
        attempt(3, "b", "lost"),
        attempt(4, "~run", "closing"),
    ]
    ended = [*lost, attempt(5, "b", "cancelled"), attempt(6, "~run", "ended")]
    worded = sentence(run(RunStatus.FAILED, error_code="E_WORKER_CRASH_LOOP", ended_at=NOW), Place(NOW, ended))
    assert worded.startswith("The step 'b' was lost with its worker at attempt 3, the last of its tries")
    let_go = [attempt(1, "b", "lost"), attempt(2, "b", "cancelled"), attempt(3, "~run", "ended")]
    assert standing_at(run(RunStatus.FAILED), let_go) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ErrorInfo("E_CARD_DECLINED", "PermanentError", "declined", retryable=False),
            "1, which is not tried again; the",
        ),
        (ErrorInfo("E_CARD_DECLINED", "RetryableError", "busy"), "1, the last of its tries; the"),
    ],
)
def test_an_error_that_is_not_tried_again_is_not_called_the_last_of_many(error: ErrorInfo, words: str) -> None:
    failed = replace(attempt(1, "pay", "failed", code=error.code), error=msgspec.json.encode(error).decode())
    worded = sentence(run(RunStatus.FAILED, error_code=error.code, ended_at=NOW), Place(NOW, [failed]))
    assert f"failed with E_CARD_DECLINED at attempt {words}" in worded


def test_a_step_that_the_workflow_caught_is_not_blamed_for_its_end() -> None:
    caught = [attempt(1, "pay", "failed", code="E_CARD_DECLINED"), attempt(2, "~run", "ended")]
    failed = run(RunStatus.FAILED, error_code="E_WORKFLOW_FAILED", ended_at=NOW)
    assert sentence(failed, Place(NOW, caught)).startswith("Failed with E_WORKFLOW_FAILED outside any step")
    blamed = run(RunStatus.FAILED, error_code="E_CARD_DECLINED", ended_at=NOW)
    assert sentence(blamed, Place(NOW, caught)).startswith("The step 'pay' failed with E_CARD_DECLINED")


def test_a_wish_to_cancel_is_told_while_the_run_lives() -> None:
    assert "cancellation" in sentence(run(RunStatus.SLEEPING, cancel_requested=True), Place(NOW))
    assert "cancellation" not in sentence(run(RunStatus.SUCCEEDED, cancel_requested=True), Place(NOW))


def test_a_run_stands_at_its_last_step_that_did_not_succeed_after_all() -> None:
    passed = [attempt(1, "a", "failed"), attempt(2, "a", "succeeded"), attempt(3, "~t1", "opened")]
    assert standing_at(run(RunStatus.RUNNING), passed) is None
    at = standing_at(run(RunStatus.RUNNING), [*passed, attempt(4, "b", "failed"), attempt(5, "c", "succeeded")])
    assert at is not None
    assert at.step_id == "b"
    older = [attempt(1, "a", "failed", generation=1)]
    assert standing_at(run(RunStatus.RUNNING, generation=2), older) is None
