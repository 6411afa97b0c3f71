"""`events tail`: one line an event, or one document; the stream is asked for again where it ends."""

import json

from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RestService

MADE = {
    "event_id": "evt_1", "accepted_at": "2026-07-19T14:02:11.884Z", "type": "invoice.approved",
    "runs": [{"run_id": "run_1", "trigger_id": "trg_a", "state": "failed"},
             {"run_id": "run_2", "trigger_id": "trg_b", "state": "running"}],
}  # fmt: skip
NONE = {"event_id": "evt_2", "accepted_at": "2026-07-19T14:02:12Z", "type": None, "runs": []}


def stream(service: RestService, *events: object) -> None:
    told = [f"id: 1:1:.{at}\nevent: event\ndata: {json.dumps(one)}\n\n" for at, one in enumerate(events)]
    text = "".join(["id: 1:1:.x\nevent: begin\ndata: {}\n\n", *told])
    service.state.answers["/v1/automation/events"] = (200, text.encode(), "text/event-stream")


def test_each_run_of_an_event_is_a_line(a44: Command, logged_in: RestService) -> None:
    stream(logged_in, MADE, NONE)
    outcome = a44("automation", "events", "tail", "--type", "invoice.approved", "--since", "10m", "--max", "2")
    assert outcome.code == 0
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["2026-07-19", "14:02:11Z", "evt_1", "invoice.approved", "trg_a", "run_1", "failed"],
        ["2026-07-19", "14:02:11Z", "evt_1", "invoice.approved", "trg_b", "run_2", "running"],
        ["2026-07-19", "14:02:12Z", "evt_2", "made", "no", "run"],
    ]
    assert logged_in.state.seen[-1].query == {"type": "invoice.approved", "since": "10m"}


def test_as_json_each_event_is_a_document(a44: Command, logged_in: RestService) -> None:
    stream(logged_in, MADE, NONE)
    outcome = a44("automation", "events", "tail", "--max", "3", "--json")
    assert [json.loads(line)["event_id"] for line in outcome.out.splitlines()] == ["evt_1", "evt_2", "evt_1"]
    assert logged_in.state.seen[-1].headers["last-event-id"] == "1:1:.1"


def test_a_trigger_that_is_not_published_is_said_since_nothing_may_ever_come(
    a44: Command, logged_in: RestService
) -> None:
    stream(logged_in, MADE)
    assert a44("automation", "events", "tail", "--trigger", "trg_x", "--max", "1").err == ""
    outcome = a44("automation", "events", "tail", "--trigger", "trg_typo", "--max", "1")
    assert "trg_typo is no trigger that is published" in outcome.err
    assert "evt_1" in outcome.out


def test_what_the_service_refuses_is_told(a44: Command, logged_in: RestService) -> None:
    problem = {"code": "E_INVALID_PARAMETER", "detail": "since=x is neither a span such as 48h nor a moment"}
    logged_in.state.answers["/v1/automation/events"] = (400, json.dumps(problem).encode(), "application/problem+json")
    outcome = a44("automation", "events", "tail", "--since", "x")
    assert outcome.code == 3
    assert "neither a span" in outcome.err
