"""`runs`, `show`, `logs`, `workflows`, `triggers`, `publish`: what is read, and how it is told."""

import json
from pathlib import Path

import pytest

import ops.client.stream
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RUN, SECRET, RestService, record


def row(number: int, state: str = "failed") -> dict[str, object]:
    return {
        "run_id": f"run_{number:026}",
        "workflow_id": "wf_x",
        "version": "3",
        "state": state,
        "current_step": "pay",
        "error_code": "E_UPSTREAM_503",
        "accepted_at": "2026-07-19T14:02:11.884Z",
        "ended_at": "2026-07-19T14:02:12.284Z",
    }


def test_runs_print_the_total_first_and_then_whole_values(a44: Command, logged_in: RestService) -> None:
    logged_in.state.runs = [row(n) for n in range(5)]
    outcome = a44("automation", "runs", "--limit", "3")
    total, titles, *rows = outcome.out.splitlines()
    assert total == "5 runs"
    assert titles.split() == ["RUN", "WORKFLOW", "VERSION", "STATE", "STEP", "ERROR", "ACCEPTED", "TOOK"]
    assert [line.split()[0] for line in rows] == [f"run_{n:026}" for n in range(3)]
    assert rows[0].split()[-1] == "0.4s"
    assert "3 of 5" in outcome.err


def test_runs_go_through_as_many_pages_as_it_takes(a44: Command, logged_in: RestService) -> None:
    logged_in.state.runs = [row(n) for n in range(5)]
    found = a44("automation", "runs", "--json").document
    assert found["total"] == 5
    assert [run["run_id"] for run in found["runs"]] == [f"run_{n:026}" for n in range(5)]
    assert len(logged_in.state.paths("GET")) == 3


def test_filters_are_the_services_to_judge(a44: Command, logged_in: RestService) -> None:
    logged_in.state.runs = [row(1), row(2, "succeeded")]
    arguments = ("--state", "failed", "--step", "pay", "--workflow", "wf_x", "--since", "48h")
    assert a44("automation", "runs", *arguments).out.startswith("1 run")
    query = logged_in.state.seen[-1].query
    assert query == {"state": "failed", "step": "pay", "workflow": "wf_x", "since": "48h", "limit": "50"}


def test_an_exception_of_the_authors_is_told_by_its_name(a44: Command, logged_in: RestService) -> None:
    error = {"code": "E_STEP_FAILED", "type": "KeyError", "message": "'skus'", "line": "ship.py:10"}
    logged_in.state.records = [record(1, "pay", "failed") | {"error_code": "E_STEP_FAILED", "error": error}]
    assert a44("automation", "show", RUN).out.rstrip().endswith("E_STEP_FAILED KeyError: 'skus' (ship.py:10)")


def test_show_tells_what_came_too_late(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "pay", "lost"), record(2, "pay", "succeeded")]
    late = {
        "step_id": "pay",
        "attempt": 1,
        "fence": 1,
        "status": "succeeded",
        "recorded_at": "2026-07-19T14:02:12.284Z",
    }
    logged_in.state.late = [late]
    *_, last = a44("automation", "show", RUN).out.splitlines()
    assert last.split() == ["14:02:12.284", "pay", "late", "succeeded"]


def test_show_tells_where_the_run_is(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [
        record(1, "pay", "failed", error_code="E_UPSTREAM_503", error={"message": "busy", "line": "pay.py:7"})
    ]
    outcome = a44("automation", "show", RUN)
    assert "Where it is." in outcome.out
    assert "started   2026-07-19T14:02:11.884" in outcome.out
    assert "E_UPSTREAM_503 busy (pay.py:7)" in outcome.out


def test_a18_show_keeps_numbers_as_they_were_recorded(a44: Command, logged_in: RestService) -> None:
    exact = '{"id":9007199254740993,"long":123456789012345678901234567890,"one":1.0,"price":1.10}'
    logged_in.state.result_text = exact
    assert exact in a44("automation", "show", RUN, "--json").out


def test_a_run_that_does_not_exist_is_not_found(a44: Command, logged_in: RestService) -> None:
    outcome = a44("automation", "show", "run_none", "--json")
    assert outcome.code == 4
    assert outcome.out == ""
    assert outcome.problem["code"] == "E_RUN_NOT_FOUND"
    assert outcome.problem["request_id"] == "req_1"


def test_logs_go_on_after_a_cut_without_loss_or_repetition(
    a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.client.stream, "_FIRST_PAUSE", 0.001)
    logged_in.state.records = [record(n, f"step-{n}") for n in range(1, 6)]
    logged_in.state.cut_stream_after = 3
    outcome = a44("automation", "logs", RUN, "--follow")
    assert [line.split()[1] for line in outcome.out.splitlines()] == [f"step-{n}" for n in range(1, 6)]
    assert outcome.code == 0
    asked = [seen.headers.get("last-event-id") for seen in logged_in.state.seen]
    assert asked == [None, "1.2"]


def test_logs_ride_out_an_error_event(a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.client.stream, "_FIRST_PAUSE", 0.001)
    logged_in.state.records = [record(n, f"step-{n}") for n in range(1, 4)]
    logged_in.state.error_event_once = True
    outcome = a44("automation", "logs", RUN, "--follow", "--json")
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert [event.get("seq") for event in events] == [1, 2, 3, None]
    assert [event["event"] for event in events] == ["record"] * 3 + ["end"]


def test_logs_give_up_on_a_stream_that_never_goes_on(
    a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.client.stream, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(ops.client.stream, "_LONGEST_PAUSE", 0.002)
    logged_in.state.end_state = None
    outcome = a44("automation", "logs", RUN, "--follow")
    assert outcome.code == 5
    assert "E_UNAVAILABLE" in outcome.err


def test_logs_of_a_failed_run_end_with_one_only_where_they_follow(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "pay", "failed")]
    logged_in.state.end_state = "failed"
    assert a44("automation", "logs", RUN, "--follow").code == 1
    once = a44("automation", "logs", RUN)
    assert once.code == 0
    assert logged_in.state.seen[-1].query == {"follow": "false"}
    assert once.out.split()[1:5] == ["pay", "attempt", "1", "failed"]


def test_the_log_of_a_run_that_goes_on_ends_where_it_stands(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "reserve")]
    logged_in.state.end_state = None
    outcome = a44("automation", "logs", RUN)
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 1


def test_workflows_and_triggers_are_listed(a44: Command, logged_in: RestService) -> None:
    assert a44("automation", "workflows").out.splitlines()[0] == "1 workflow"
    assert a44("automation", "workflows", "--json").document[0]["workflow_id"] == "wf_x"
    assert "trg_x" in a44("automation", "triggers").out
    assert a44("automation", "triggers", "--json").document[0]["type"] == "webhook"


def test_what_a_filter_let_pass_by_is_listed(a44: Command, logged_in: RestService) -> None:
    assert a44("automation", "trigger", "misses", "trg_x").out.splitlines()[0] == "1 event"
    assert a44("automation", "trigger", "misses", "trg_x", "--json").document[0]["event_id"] == "evt_1"


def test_triggers_are_tried_on_an_event(a44: Command, logged_in: RestService, tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text('{"type": "order.paid", "data": {"n": 12345678901234567890}}')
    outcome = a44("automation", "trigger", "test", "--event", str(event))
    assert outcome.out.splitlines()[0] == "1 of 2 triggers start a run for order.paid"
    assert outcome.out.splitlines()[1] == "its data does not fit, at /n, version 2 of the schema of its type"
    assert "too old [E_EVENT_TOO_OLD]" in outcome.out
    assert a44("automation", "trigger", "test", "--event", str(event), "--json").document["triggers"][0]["fires"]
    assert logged_in.state.seen[-1].body == event.read_bytes()
    gone = a44("automation", "trigger", "test", "--event", str(tmp_path / "gone.json"))
    assert gone.code != 0
    assert "gone.json" in gone.err


def test_publish_sends_texts_by_path_and_shows_a_new_secret_once(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    flow = "name: x\nversion: 1\nsteps:\n  - { id: rest, uses: sleep, duration: 1s }\n"
    (tmp_path / "flow.yaml").write_text(flow)
    outcome = a44("automation", "publish", "flow.yaml", "--dev")
    assert outcome.code == 0
    sent = json.loads(logged_in.state.seen[-1].body)
    assert sent == {"files": {"flow.yaml": flow}, "dev": True}
    assert "created" in outcome.out
    assert SECRET.hex() in outcome.out
    assert "warning: 1 files" in outcome.err


def test_publish_of_nothing_is_wrong_use(a44: Command, logged_in: RestService) -> None:
    outcome = a44("automation", "publish", "nowhere")
    assert outcome.code == 2
    assert not logged_in.state.seen


def test_every_error_of_a_publication_is_listed_with_its_place(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text("name: x\nversion: 1\nsteps: []\n")
    errors = [
        {"code": "E_STEP_TIMEOUT_MISSING", "message": "no timeout", "file": "flow.yaml", "line": 4, "column": 5},
        {"code": "E_SPEC_INVALID", "message": "`usse` is not known", "file": "flow.yaml", "line": 9, "column": 5},
    ]
    problem = {"code": "E_STEP_TIMEOUT_MISSING", "detail": "no timeout", "status": 422, "errors": errors}
    answer = (422, json.dumps(problem).encode(), "application/problem+json")
    logged_in.state.answers["/v1/automation/publish"] = answer
    outcome = a44("automation", "publish", "flow.yaml")
    assert outcome.code == 3
    assert outcome.err.splitlines()[1:] == [
        "  flow.yaml:4:5: no timeout [E_STEP_TIMEOUT_MISSING]",
        "  flow.yaml:9:5: `usse` is not known [E_SPEC_INVALID]",
    ]
