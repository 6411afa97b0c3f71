"""Redrives over HTTP: planned, confirmed, ordered under the token's name, and refused with the way out."""

import pytest

from processors.gateway.limits import Limits
from processors.ports.tokens import READ
from tests.integration.gateway.conftest import Answer, Gateway
from tests.integration.gateway.test_dead_letters_api import PROJECT, bury

API = "/v1/automation/dead-letters"
QUEUE = "q_default"
pytestmark = pytest.mark.usefixtures("secret")  # its workflow is published


@pytest.fixture
def limits() -> Limits:
    return Limits(redrive_rate=30.0)


async def redrive(gateway: Gateway, token: str | None = None, **fields: object) -> Answer:
    told = {"queue": QUEUE, "filter": "error_code == 'E_UPSTREAM_503'", "max": 5000, **fields}
    return await gateway.call("POST", f"{API}/redrive", json=told, token=token)


_TOLD = """
update automation.dead_letters
   set workflow_id = 'wf_invoice_settle', trigger_id = 'trg_settle', reason = %s, redrive_count = %s
 where error_code = %s
"""


async def some(
    gateway: Gateway, count: int, code: str = "E_UPSTREAM_503", reason: str = "permanent_error", redrive_count: int = 0
) -> list[str]:
    """Letters of a published workflow, the oldest first."""
    letters = [f"dlq_{code}_{number}" for number in range(count)]
    for number, letter in enumerate(letters):
        await bury(gateway, letter, code=code, hours=count - number)
    await gateway.rows(_TOLD, reason, redrive_count, code)
    return letters


async def orders(gateway: Gateway) -> list[dict[str, object]]:
    return await gateway.rows("select * from automation.redrives")


async def test_an_order_takes_what_matches_under_the_tokens_name(gateway: Gateway) -> None:
    letters = await some(gateway, 3)
    await some(gateway, 2, "E_CARD_DECLINED")
    answer = await redrive(gateway, rate="20/s", reason="the partner is back")
    assert answer.status == 202
    assert (answer.body["letters"], answer.body["matched"], answer.body["scanned"]) == (3, 3, 5)
    assert (answer.body["rate"], answer.body["seconds"], answer.body["warnings"]) == (20.0, 1, [])
    assert answer.body["examples"] == letters
    (order,) = await orders(gateway)
    (token,) = await gateway.rows("select token_id from automation.tokens where name = 'tests'")
    assert (order["redrive_id"], order["operator"]) == (answer.body["redrive_id"], token["token_id"])
    assert (order["project_id"], order["reason"], order["rate"]) == (PROJECT, "the partner is back", 20.0)
    taken = await gateway.rows("select dead_letter_id from automation.redrive_letters order by place")
    assert [row["dead_letter_id"] for row in taken] == letters
    shown = (await gateway.call("GET", f"{API}/{letters[0]}")).body
    assert (shown["redrive_id"], shown["redriven_as"]) == (order["redrive_id"], None)


async def test_g08_a_dry_run_says_all_of_it_and_changes_nothing(gateway: Gateway) -> None:
    await some(gateway, 4)
    await some(gateway, 2, "E_EVENT_TOO_OLD", reason="event_too_old")
    answer = await redrive(gateway, filter="error_code.startsWith('E_')", max=3, dry_run=True, rate="90/m")
    assert answer.status == 200
    assert (answer.body["redrive_id"], answer.body["letters"], answer.body["left"]) == (None, 3, 1)
    assert (answer.body["matched"], answer.body["skipped"], answer.body["seconds"]) == (6, {"too_old": 2}, 2)
    assert await orders(gateway) == []
    assert await gateway.rows("select from automation.audit_log where action = 'redrive.start'") == []


async def test_g08_too_old_events_are_refused_aloud_and_taken_where_that_is_said(gateway: Gateway) -> None:
    await some(gateway, 2, "E_EVENT_TOO_OLD", reason="event_too_old")
    stale = {"filter": "error_code == 'E_EVENT_TOO_OLD'"}
    refused = await redrive(gateway, **stale)
    assert (refused.status, refused.code) == (409, "E_REDRIVE_EMPTY")
    assert refused.body["skipped"] == {"too_old": 2}
    assert (await redrive(gateway, **stale, allow_stale=True)).body["letters"] == 2


async def test_g10_no_filter_is_refused_and_one_that_takes_everything_confirms_the_number(gateway: Gateway) -> None:
    await some(gateway, 3)
    for told in ("", " "):
        assert (await redrive(gateway, filter=told)).code == "E_EXPRESSION"
    without = await gateway.call("POST", f"{API}/redrive", json={"queue": QUEUE, "max": 10})
    assert (without.status, without.code) == (400, "E_INVALID_PARAMETER")
    assert "filter" in without.body["detail"]
    refused = await redrive(gateway, filter="true")
    assert (refused.status, refused.code, refused.body["letters"]) == (409, "E_REDRIVE_UNCONFIRMED", 3)
    assert "--max 3" in refused.body["detail"]
    assert (await redrive(gateway, filter="true", max=2)).code == "E_REDRIVE_UNCONFIRMED"
    assert await orders(gateway) == []
    assert (await redrive(gateway, filter="true", max=3)).body["letters"] == 3


async def test_g07_many_redrives_are_warned_of_and_then_refused(gateway: Gateway) -> None:
    await some(gateway, 1, redrive_count=2)
    assert "died again" in (await redrive(gateway, dry_run=True)).body["warnings"][0]
    await some(gateway, 1, "E_AGAIN", redrive_count=5)
    refused = await redrive(gateway, filter="error_code == 'E_AGAIN'")
    assert (refused.code, refused.body["skipped"]) == ("E_REDRIVE_EMPTY", {"redriven_too_often": 1})


async def test_a_mistake_in_the_filter_is_told_with_its_place(gateway: Gateway) -> None:
    answer = await redrive(gateway, filter="error_code == 503")
    assert (answer.status, answer.code) == (422, "E_EXPRESSION")
    assert answer.body["place"] == {"file": "filter", "line": 1, "column": 12}


async def test_a_second_order_for_the_same_letters_finds_none(gateway: Gateway) -> None:
    await some(gateway, 3)
    assert (await redrive(gateway)).status == 202
    assert (await redrive(gateway)).code == "E_REDRIVE_EMPTY"
    assert len(await orders(gateway)) == 1


async def test_the_rate_of_a_project_is_capped_and_the_answer_says_so(gateway: Gateway) -> None:
    for code in ("E_ONE", "E_TWO"):
        await some(gateway, 1, code)
    first = await redrive(gateway, filter="error_code == 'E_ONE'", rate="100/s")
    assert first.body["rate"] == 30.0
    assert "30 letters a second" in first.body["warnings"][0]
    second = await redrive(gateway, filter="error_code == 'E_TWO'", rate="1/s")
    assert (second.status, second.code) == (429, "E_REDRIVE_RATE")


async def test_b09_letters_of_another_project_are_not_redriven(gateway: Gateway) -> None:
    await bury(gateway, "dlq_theirs", project="pj_other")
    await gateway.rows("update automation.dead_letters set workflow_id = 'wf_invoice_settle'")
    assert (await redrive(gateway)).body["scanned"] == 0
    assert await gateway.rows("select from automation.redrive_letters") == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max": 0}, "max"),
        ({"max": 50_001}, "max"),
        ({"max": "many"}, "max"),
        ({"rate": "fast"}, "rate"),
        ({"queue": "q_defualt"}, "q_default"),
        ({"reason": "x" * 1001}, "reason"),
        ({"frobnicate": 1}, "frobnicate"),
        ({"dry_run": "yes"}, "dry_run"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(gateway: Gateway, fields: dict[str, object], name: str) -> None:
    answer = await redrive(gateway, **fields)
    assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")
    assert name in answer.body["detail"]


async def test_who_may_only_read_gives_no_orders(gateway: Gateway) -> None:
    reader = await gateway.tokens.create_token(PROJECT, "panel", [READ])
    assert (await redrive(gateway, token=reader)).code == "E_SCOPE"


async def test_orders_are_listed_and_one_is_stopped_under_the_tokens_name(gateway: Gateway) -> None:
    await some(gateway, 3)
    made = await redrive(gateway, rate="1/m", reason="try one")
    order = made.body["redrive_id"]
    (listed,) = (await gateway.call("GET", f"{API}/redrives?under_way=true")).body["redrives"]
    assert (listed["redrive_id"], listed["state"], listed["waiting"], listed["reason"]) == (
        order,
        "under_way",
        3,
        "try one",
    )
    stopped = await gateway.call("POST", f"{API}/redrives/{order}/stop", json={"reason": "the wrong ones"})
    assert (stopped.status, stopped.body["state"], stopped.body["stop_reason"]) == (200, "stopped", "the wrong ones")
    (token,) = await gateway.rows("select token_id from automation.tokens where name = 'tests'")
    assert stopped.body["stopped_by"] == stopped.body["operator"] == token["token_id"]
    again = await gateway.call("POST", f"{API}/redrives/{order}/stop")
    assert (again.status, again.body) == (200, stopped.body)
    assert (await gateway.call("GET", f"{API}/redrives?under_way=true")).body == {"redrives": [], "next": None}
    assert (await redrive(gateway)).body["letters"] == 3  # they are free
    page = (await gateway.call("GET", f"{API}/redrives?limit=1")).body
    assert len(page["redrives"]) == 1
    rest = (await gateway.call("GET", f"{API}/redrives?after={page['next']}")).body
    assert [one["redrive_id"] for one in rest["redrives"]] == [order]


async def test_b09_an_order_of_another_project_is_neither_seen_nor_stopped(gateway: Gateway) -> None:
    await some(gateway, 1)
    order = (await redrive(gateway)).body["redrive_id"]
    other = await gateway.tokens.create_token("pj_other", "theirs", ["automation:read", "automation:write"])
    assert (await gateway.call("GET", f"{API}/redrives", token=other)).body["redrives"] == []
    for name in (order, "rdv_nobody", "%00", "x" * 300):
        refused = await gateway.call("POST", f"{API}/redrives/{name}/stop", token=other)
        assert (refused.status, refused.code) == (404, "E_REDRIVE_NOT_FOUND")
    assert [row["ended_at"] for row in await orders(gateway)] == [None]


async def test_stopping_needs_the_right_to_write_and_a_reason_that_can_be_kept(gateway: Gateway) -> None:
    await some(gateway, 1)
    path = f"{API}/redrives/{(await redrive(gateway)).body['redrive_id']}/stop"
    reader = await gateway.tokens.create_token(PROJECT, "panel", [READ])
    assert (await gateway.call("POST", path, token=reader)).code == "E_SCOPE"
    for fields in ({"reason": "x" * 1001}, {"reason": "a\0b"}, {"reason": 7}, {"why": ""}):
        assert (await gateway.call("POST", path, json=fields)).status in {400, 422}
    assert [row["ended_at"] for row in await orders(gateway)] == [None]


async def test_a_dry_run_knows_the_projects_own_cap(gateway: Gateway) -> None:
    await some(gateway, 2)
    await gateway.rows("insert into automation.projects (project_id, redrive_rate) values (%s, 2)", PROJECT)
    planned = (await redrive(gateway, dry_run=True, rate="20/s")).body
    assert (planned["rate"], planned["seconds"]) == (2.0, 1)
    assert (await redrive(gateway, rate="20/s")).body["rate"] == 2.0
