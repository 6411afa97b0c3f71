"""Figures of a project are set by an operator alone, within bounds, with an audit row; and the doors go by them."""

import json
from datetime import datetime, timedelta

import pytest

from processors.gateway.app import RATES
from tests.integration.gateway.conftest import PROJECT, Gateway

PROJECTS = "/v1/automation/projects"
OWN = f"{PROJECTS}/{PROJECT}"
EVENTS = "/v1/automation/events"


@pytest.fixture
async def operator(gateway: Gateway) -> str:
    """Of another project than the one that is set."""
    return await gateway.tokens.create_token("pj_ops", "ops", ["automation:operator", "automation:read"])


async def test_a_project_without_figures_goes_by_the_installation(gateway: Gateway) -> None:
    answer = await gateway.call("GET", OWN)
    assert answer.body == {
        "project_id": PROJECT,
        "dedup_window_hours": None,
        "events_per_second": None,
        "redrive_rate": None,
        "in_force": {"dedup_window_hours": 24.0, "events_per_second": None, "redrive_rate": 50.0},
        "updated_at": None,
    }


async def test_what_is_set_is_in_force_at_the_doors_and_in_the_audit_log(gateway: Gateway, operator: str) -> None:
    told = {"dedup_window_hours": 72, "reason": "slow partner"}
    answer = await gateway.call("POST", OWN, json=told, token=operator)
    assert (answer.status, answer.body["dedup_window_hours"], answer.body["events_per_second"]) == (200, 72.0, None)
    assert (await gateway.call("POST", EVENTS, json={"type": "a.b", "data": 1})).status == 202
    [key] = await gateway.rows("select accepted_at, expires_at from automation.idempotency_keys")
    assert abs(key["expires_at"] - key["accepted_at"] - timedelta(hours=72)) < timedelta(minutes=5)

    limited = await gateway.call("POST", OWN, json={"events_per_second": 0.01}, token=operator)
    assert (limited.body["dedup_window_hours"], limited.body["in_force"]["events_per_second"]) == (72.0, 0.01)
    await gateway.app[RATES].refresh()
    asked = [await gateway.call("POST", EVENTS, json={"type": "a.b", "data": number}) for number in (2, 3)]
    assert [one.status for one in asked] == [202, 429]

    freed = await gateway.call(
        "POST", OWN, json={"events_per_second": None, "dedup_window_hours": None}, token=operator
    )
    assert freed.body["in_force"] == {"dedup_window_hours": 24.0, "events_per_second": None, "redrive_rate": 50.0}
    audit = await gateway.rows(
        "select project_id, actor, subject, details from automation.audit_log where action = 'project.set' "
        "order by audit_id"
    )
    [token] = await gateway.rows("select token_id from automation.tokens where project_id = 'pj_ops'")
    assert {(row["project_id"], row["actor"], row["subject"]) for row in audit} == {
        (PROJECT, token["token_id"], PROJECT)
    }
    assert json.loads(audit[0]["details"]) == {
        "before": {"dedup_window_hours": None, "events_per_second": None, "redrive_rate": None},
        "after": {"dedup_window_hours": 72, "events_per_second": None, "redrive_rate": None},
        "reason": "slow partner",
    }
    before = json.loads(audit[1]["details"])["before"]
    assert before == {"dedup_window_hours": 72, "events_per_second": None, "redrive_rate": None}


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        ({"dedup_window_hours": 72.5}, "dedup_window_hours is 72.5; expected hours above 0, at most 72"),
        ({"dedup_window_hours": 0}, "dedup_window_hours is 0; expected"),
        ({"dedup_window_hours": 48, "events_per_second": -1}, "events_per_second is -1; expected"),
        ({"events_per_second": 1e300}, "at most 1000000, or null"),
        ({"redrive_rate": 0}, "redrive_rate is 0; expected letters a second from 0.001, at most 100000"),
        ({"redrive_rate": 1e-9}, "redrive_rate is 1e-09; expected letters a second from 0.001, at most 100000"),
        ({"dedup_window_hours": "48"}, "dedup_window_hours"),
        ({"window": 48}, "window"),
        ({"reason": "nothing"}, "nothing is to be set"),
        ({"dedup_window_hours": 48, "reason": "a\0b"}, "without NUL"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_and_nothing_is_set(
    gateway: Gateway, operator: str, told: dict[str, object], seen: str
) -> None:
    answer = await gateway.call("POST", OWN, json=told, token=operator)
    expected = ("E_BODY_UNSTORABLE", 422) if "NUL" in seen else ("E_INVALID_PARAMETER", 400)
    assert (answer.code, answer.status) == expected
    assert seen in answer.body["detail"] or expected[1] == 422
    assert await gateway.rows("select project_id from automation.projects") == []
    assert await gateway.rows("select audit_id from automation.audit_log where action = 'project.set'") == []


async def test_without_the_scope_a_token_sees_its_own_project_and_sets_none(gateway: Gateway, operator: str) -> None:
    for method, path in (("POST", OWN), ("GET", PROJECTS), ("GET", f"{PROJECTS}/pj_ops")):
        answer = await gateway.call(method, path, json={"dedup_window_hours": 48})
        assert (answer.status, answer.code) == (403, "E_SCOPE")
    assert (await gateway.call("GET", f"{PROJECTS}/pj_ops", token=operator)).status == 200


async def test_a_misspelt_project_is_told_and_not_made(gateway: Gateway, operator: str) -> None:
    for name in ("pj_shpo", "automation", "%00", "%ED%A0%80"):
        for method in ("GET", "POST"):
            answer = await gateway.call(method, f"{PROJECTS}/{name}", json={"dedup_window_hours": 48}, token=operator)
            assert (answer.status, answer.code) == (404, "E_PROJECT_NOT_FOUND")
    assert await gateway.rows("select project_id from automation.projects") == []


async def test_projects_are_listed_by_name_in_pages(gateway: Gateway, operator: str) -> None:
    await gateway.tokens.create_token("pj_aaa", "tests", ["automation:read"])
    await gateway.call("POST", f"{PROJECTS}/pj_aaa", json={"events_per_second": 5}, token=operator)
    first = (await gateway.call("GET", f"{PROJECTS}?limit=2", token=operator)).body
    assert [row["project_id"] for row in first["projects"]] == ["pj_aaa", "pj_ops"]
    assert first["projects"][0]["events_per_second"] == 5
    assert datetime.fromisoformat(first["projects"][0]["updated_at"]).tzinfo is not None
    rest = (await gateway.call("GET", f"{PROJECTS}?limit=2&after={first['next']}", token=operator)).body
    assert ([row["project_id"] for row in rest["projects"]], rest["next"]) == ([PROJECT], None)
