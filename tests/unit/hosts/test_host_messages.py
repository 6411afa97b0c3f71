"""What hosts say, checked; and what is said to them."""

import json
from datetime import UTC, datetime

import pytest

from anthares44.automation.wire import WireError
from processors.engine.requests import BodyEnd, BodyStatus, CancelRequest, RetryPolicy, StepRequest, TimerRequest
from processors.executor.hosts import calls, messages, values
from processors.ports.bodies import BodyStart, Past
from schemas.records import ErrorInfo

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
ERROR = ErrorInfo("E_STEP_FAILED", "LookupError", "no", "flow.py:3", retryable=False, retry_after=1.5)


def test_a_turn_becomes_requests() -> None:
    step = {"item": "a", "kind": "step", "timeout": 5, "retry": {"max": 2, "strategy": "s", "base": 0.5, "cap": 9}}
    turn = messages.read(
        {
            "t": "TURN", "run": "run_1", "fence": 3, "after": 2, "new": "field", "ended": None,
            "requests": [
                {**step, "compensate": True, "exclusive": False, "started": True, "token": "h1", "after": 1},
                {"item": "~t1", "kind": "timer", "seconds": 1.5},
                {"item": "b", "kind": "cancel_item", "target": "b"},
            ],
        }
    )  # fmt: skip
    assert isinstance(turn, messages.Turn)
    assert turn.requests == [
        StepRequest("a", 5.0, RetryPolicy(2, 0.5, 9.0, "s"), compensate=True, started=True, token="h1", after=1),
        TimerRequest("~t1", 1.5),
        CancelRequest("b"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"t": "SING"},
        {"t": "TURN", "run": "r", "fence": 1, "after": 0, "requests": [{"kind": "dance", "item": "a"}]},
        {"t": "TURN", "run": "r", "fence": 1, "after": "0", "requests": []},
        {"t": "TURN", "run": "r", "fence": 1, "after": 0, "requests": [], "ended": {"status": "perhaps"}},
        {"t": "DONE", "run": "r", "fence": 1, "item": "a", "attempt": 1, "token": "h1", "value": None},
        {"t": "BEAT", "tokens": [["run", "item"]]},
    ],
)
def test_what_is_not_of_the_format_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(WireError):
        messages.read(message)


PROGRESS = {"t": "PROGRESS", "run": "r", "fence": 1, "item": "a"}


@pytest.mark.parametrize(
    "fault",
    [{"t": "SING"}, {"t": ["DONE"]}, {**PROGRESS, "fence": "1"}, {"run": "r"}, 7, None, {"t": "CHUNK", "id": "1"}],
)
def test_what_a_frame_holds_before_a_fault_is_taken(fault: object) -> None:
    read, error = messages.read_frame(json.dumps([PROGRESS, PROGRESS, fault, PROGRESS]).encode())
    assert read == [messages.Progress("r", 1, "a")] * 2
    assert isinstance(error, WireError)


@pytest.mark.parametrize("payload", [b"{}", b"[,", b"\xff\xfe", b"[{]", b"[[]]"])
def test_a_frame_that_holds_no_messages_is_refused(payload: bytes) -> None:
    read, error = messages.read_frame(payload)
    assert read == []
    assert isinstance(error, WireError)


def test_a_lone_surrogate_written_as_an_escape_is_read() -> None:
    payload = b'[{"t":"LOG","text":"a\\udcff","new":{"of":[1]}},{"t":"LOADED","workflow":"w","version":"1"}]'
    assert messages.read_frame(payload) == ([messages.Log("a\udcff"), messages.Loaded("w", "1")], None)


def test_errors_cross_cut_and_storable() -> None:
    error = messages.error_of(
        messages.WireFailure("E" * 500, "T", "a\0b\ud800" + "x" * 9_000, file="flow.py", line=7, retry_after=2.0)
    )
    assert (len(error.code), error.line, error.retry_after) == (80, "flow.py:7", 2.0)
    assert error.message.startswith("a\\x00b\\ud800x")
    assert len(error.message) <= 4_003


def test_a_divergence_without_text_says_what_was_expected() -> None:
    told = messages.read({"t": "DIVERGED", "run": "r", "fence": 1, "code": "E_X", "expected": "a", "seen": "b"})
    assert isinstance(told, messages.Diverged)
    assert messages.divergence(told) == ErrorInfo("E_X", "", "expected a, saw b", None, retryable=False)


@pytest.mark.parametrize("text", ["1", "1.0", '"\\u00e9"', '{"a":[1e3,null]}', str(2**70), '"a\\\\u0000"'])
def test_results_that_are_json_pass(text: str) -> None:
    assert values.value_problem(text) is None


@pytest.mark.parametrize("text", ["", "{", "1 2", "NaN", '"\\u0000"', '"\\ud800"', "'a'", "[" * 100_000])
def test_results_that_are_not_are_a_permanent_failure(text: str) -> None:
    problem = values.value_problem(text)
    assert problem is not None
    assert (problem.code, problem.retryable) == ("E_RESULT_NOT_JSON", False)


def test_an_end_with_a_bad_value_is_a_failure() -> None:
    assert values.checked_end(None) is None
    assert values.checked_end(messages.Ended("succeeded", "1")) == BodyEnd(BodyStatus.SUCCEEDED, "1", None)
    bad = values.checked_end(messages.Ended("succeeded", "nonsense"))
    assert bad is not None
    assert (bad.status, bad.value) == (BodyStatus.FAILED, None)


def start(history: list[Past]) -> BodyStart:
    return BodyStart(
        "run_1", 2, "acme", "wf_t", 1, "4", "code", 3, '{"a": 1}', AT, "key", "p", "l", "evt", "t", AT, history, 7.5
    )


def test_a_start_carries_what_the_body_needs() -> None:
    (message,) = calls.start_messages(start([]), "t", "4")
    assert message == {
        "t": "START", "run": "run_1", "fence": 2, "workflow": "t", "version": "4", "generation": 3,
        "input": '{"a": 1}', "started_at": "2026-01-02T03:04:05.000006+00:00", "seed": "run_1", "key": "key",
        "history": 0, "go_until": 7.5,
    }  # fmt: skip


def test_history_is_cut_into_messages_of_bounded_size() -> None:
    past = [Past(n, f"s{n}", "step", n - 1, "succeeded", "x" * 10_000, None, AT) for n in range(1, 21)]
    first, *parts = calls.start_messages(start(past), "t", "4")
    assert first["history"] == 20
    assert [part["last"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [item["seq"] for part in parts for item in part["items"]] == list(range(1, 21))
    assert all(len(json.dumps(part)) < 64 * 1024 for part in parts)


def test_what_was_cancelled_or_is_not_settled_is_opened_in_the_history() -> None:
    past = [
        Past(1, "a", "step", 0, "failed", None, ERROR, AT),
        Past(2, "b", "step", 0, "cancelled", None, None, AT),
        Past(3, "c", "sleep", 0, None, None, None, AT),
    ]
    _, part = calls.start_messages(start(past), "t", "4")
    assert [item["status"] for item in part["items"]] == ["failed", "opened", "opened"]
    assert part["items"][0]["error"] == {
        "code": "E_STEP_FAILED", "type": "LookupError", "message": "no", "file": None, "line": "flow.py:3",
        "retryable": False, "retry_after": 1.5,
    }  # fmt: skip


def test_a_delivery_has_a_value_only_where_it_is_given() -> None:
    bare = calls.delivery("r", 1, 4, "a", "succeeded", None, None, AT, None)
    assert bare["at"] == "2026-01-02T03:04:05.000006+00:00"
    assert not bare.keys() & {"value", "error"}
    assert calls.delivery("r", 1, 4, "a", "succeeded", "1", None, AT, None)["value"] == "1"
    assert calls.delivery("r", 1, 4, "a", "failed", None, ERROR, AT, None)["error"]["code"] == "E_STEP_FAILED"
