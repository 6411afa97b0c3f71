"""`project`: figures are shown with where they come from, and set as they were told."""

import json

import pytest

from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RestService

API = "/v1/automation/projects"
SHOP = {
    "project_id": "pj_shop",
    "dedup_window_hours": 48.0,
    "events_per_second": None,
    "in_force": {"dedup_window_hours": 48.0, "events_per_second": None, "redrive_rate": 50.0},
    "updated_at": "2026-07-19T14:02:11.884Z",
}


def answer(service: RestService, path: str, document: object) -> None:
    service.state.answers[path] = (200, json.dumps(document).encode(), "application/json")


def test_a_project_is_shown_with_what_is_its_own(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/pj_shop", SHOP)
    outcome = a44("automation", "project", "show")
    assert outcome.out.splitlines() == [
        "project          pj_shop",
        "dedup window     48 h  (its own)",
        "events a second  no limit",
        "redrives         50 letters a second  (the installation's)",
        "changed          2026-07-19 14:02:11Z",
    ]
    assert a44("automation", "project", "show", "pj_shop", "--json").document == SHOP


def test_projects_are_listed(a44: Command, logged_in: RestService) -> None:
    other = {"project_id": "pj_b", "in_force": {}, "events_per_second": 2.5, "redrive_rate": 20.0}
    answer(logged_in, API, {"projects": [SHOP, other], "next": None})
    lines = a44("automation", "project", "list").out.splitlines()
    assert lines[0] == "2 projects"
    assert [line.split() for line in lines[2:]] == [
        ["pj_shop", "48", "h", "-", "-", "2026-07-19", "14:02:11Z"],
        ["pj_b", "-", "2.5", "20"],
    ]
    assert len(a44("automation", "project", "list", "--json").document["projects"]) == 2


def test_what_is_named_is_set_and_default_takes_it_back(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/pj_shop", SHOP)
    words = ("--dedup-window-hours", "48", "--events-per-second", "default", "--redrive-rate", "5", "--reason", "INC-1")
    outcome = a44("automation", "project", "set", "pj_shop", *words, "--json")
    assert (outcome.code, outcome.document) == (0, SHOP)
    sent = logged_in.state.seen[-1]
    assert (sent.method, json.loads(sent.body)) == (
        "POST", {"dedup_window_hours": 48.0, "events_per_second": None, "redrive_rate": 5.0, "reason": "INC-1"}
    )  # fmt: skip


@pytest.mark.parametrize("words", [(), ("--dedup-window-hours", "2d"), ("--events-per-second", "nan")])
def test_nothing_is_sent_that_makes_no_sense(a44: Command, logged_in: RestService, words: tuple[str, ...]) -> None:
    assert a44("automation", "project", "set", "pj_shop", *words).code == 2
    assert logged_in.state.seen == []


def test_what_the_service_refuses_is_told(a44: Command, logged_in: RestService) -> None:
    problem = {"code": "E_INVALID_PARAMETER", "detail": "dedup_window_hours is 100; expected hours above 0, at most 72"}
    logged_in.state.answers[f"{API}/pj_shop"] = (400, json.dumps(problem).encode(), "application/problem+json")
    outcome = a44("automation", "project", "set", "pj_shop", "--dedup-window-hours", "100")
    assert outcome.code == 3
    assert "at most 72" in outcome.err
