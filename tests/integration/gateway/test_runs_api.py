"""Runs through the API: started by hand, listed, shown, waited for, followed and cancelled."""

import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import psycopg
import pytest

from processors.ports.tokens import READ, WRITE
from schemas.ids import new_event_id, run_id
from tests.integration.gateway.conftest import PROJECT, Gateway
from tests.integration.gateway.histories import end_run, insert_ended, record, record_late


@pytest.fixture(autouse=True)
async def _published(secret: str) -> None:
    """Every test here has the workflow."""


async def test_a_run_by_hand_is_made_and_granted_in_the_doors_own_transaction(gateway: Gateway) -> None:
    answer = await gateway.run("k1", input={"invoiceId": "inv_1"})
    assert answer.status == 202
    assert answer.body["status"] == "created"
    [row] = await gateway.rows("select * from automation.live_runs")
    assert row["run_id"] == answer.body["run_id"]
    assert (row["state"], row["version"], row["trigger_id"]) == ("granted", "1", "trg_manual")
    assert (row["queue_id"], row["lane"], row["input"]) == ("q_default", "k1", '{"invoiceId": "inv_1"}')
    assert await gateway.rows("select id from automation.outbox") == []


async def test_the_input_is_kept_byte_for_byte(gateway: Gateway) -> None:
    body = b'{"version": "1", "input": {"n": 3544790567247868102,  "big": 1180591620717411303424, "f": 1.0}}'
    answer = await gateway.call(
        "POST",
        "/v1/automation/workflows/wf_invoice_settle/runs",
        data=body,
        headers={"A44-Idempotency-Key": "k1", "Content-Type": "application/json"},
    )
    assert answer.status == 202
    async with gateway.session.get(
        f"{gateway.url}/v1/automation/runs/{answer.body['run_id']}",
        headers={"Authorization": f"Bearer {gateway.token}"},
    ) as response:
        text = await response.text()
    assert '"input":{"n": 3544790567247868102,  "big": 1180591620717411303424, "f": 1.0}' in text


async def test_without_a_key_there_is_no_run(gateway: Gateway) -> None:
    answer = await gateway.call("POST", "/v1/automation/workflows/wf_invoice_settle/runs", json={"input": {}})
    assert (answer.status, answer.code) == (400, "E_IDEMPOTENCY_KEY_REQUIRED")
    assert await gateway.rows("select run_id from automation.live_runs") == []


async def test_a_run_by_hand_goes_through_the_workflow_s_manual_trigger(gateway: Gateway) -> None:
    one = "name: refund\nversion: 1\nsteps: [{id: nap, uses: sleep, duration: 1s}]\n"
    trigger = "- {id: trg_refund, type: manual, workflow: wf_refund, version: 1}\n"
    await gateway.publish({"one.yaml": one, "t.yaml": trigger})
    await gateway.publish({"one.yaml": one.replace("version: 1", "version: 2")})
    for key, fields, version in (("k1", {}, "1"), ("k2", {"trigger": "trg_refund"}, "1"), ("k3", {"version": 2}, "2")):
        answer = await gateway.call(
            "POST",
            "/v1/automation/workflows/wf_refund/runs",
            json=fields,
            headers={"A44-Idempotency-Key": key},
        )
        [row] = await gateway.rows(
            "select version, trigger_id from automation.live_runs where run_id = %s", answer.body["run_id"]
        )
        assert (row["version"], row["trigger_id"]) == (version, "trg_refund")
    for fields, status in (({"trigger": "trg_other"}, 404), ({"trigger": "trg_refund"}, 422)):
        answer = await gateway.call(
            "POST",
            "/v1/automation/workflows/wf_refund/runs",
            json=fields,
            headers={"A44-Idempotency-Key": "k1"},
        )
        assert answer.status == status


async def test_a_repeated_call_finds_its_run_and_its_state(gateway: Gateway) -> None:
    first = await gateway.run("k1", input={"a": 1})
    again = await gateway.run("k1", input={"a": 1})
    assert (again.status, again.body["status"]) == (200, "deduplicated")
    assert again.body["run_id"] == first.body["run_id"]
    assert again.body["state"] == "granted"
    assert again.body["key_age_seconds"] >= 0


async def test_case_B02_another_input_or_workflow_under_the_key_is_a_conflict_while_the_first_runs(
    gateway: Gateway,
) -> None:
    await gateway.run("k1", input={"a": 1})
    for fields in ({"input": {"a": 2}}, {"input": {"a": 1}, "version": "1"}):
        answer = await gateway.run("k1", **fields)
        assert (answer.status, answer.code) == (422, "E_IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"version": "9"}, 409, "E_VERSION_UNKNOWN"),
        ({"inputs": {}}, 400, "E_INVALID_PARAMETER"),
        ({"version": []}, 400, "E_INVALID_PARAMETER"),
    ],
)
async def test_what_cannot_be_run_is_refused(
    gateway: Gateway, fields: Mapping[str, Any], status: int, code: str
) -> None:
    answer = await gateway.run("k1", **fields)
    assert (answer.status, answer.code) == (status, code)


async def test_an_unknown_workflow_is_refused_with_the_nearest_name(gateway: Gateway) -> None:
    answer = await gateway.call(
        "POST",
        "/v1/automation/workflows/wf_invoice_setle/runs",
        json={},
        headers={"A44-Idempotency-Key": "k1"},
    )
    assert (answer.status, answer.code) == (404, "E_WORKFLOW_NOT_FOUND")
    assert "wf_invoice_settle" in answer.body["detail"]


async def test_the_list_is_filtered_counted_and_paged(gateway: Gateway) -> None:
    now = datetime.now(UTC)
    for number in range(5):
        await insert_ended(gateway.dsn, _id(now - timedelta(hours=number)), state="failed", error_code="E_UPSTREAM_503")
    await insert_ended(gateway.dsn, _id(now - timedelta(hours=1, minutes=1)), state="succeeded", result="1")
    await insert_ended(gateway.dsn, _id(now), state="failed", project="pj_other")
    live = (await gateway.run("k1", input={})).body["run_id"]

    async def listed(query: str) -> tuple[int, list[str]]:
        answer = await gateway.call("GET", f"/v1/automation/runs{query}")
        assert answer.status == 200, answer.body
        return answer.body["total"], [run["run_id"] for run in answer.body["runs"]]

    assert (await listed(""))[0] == 7
    assert await listed("?state=granted") == (1, [live])
    assert (await listed("?state=failed&since=150m"))[0] == 3
    assert (await listed(f"?state=failed&since={(now - timedelta(hours=1, minutes=30)).isoformat()}"))[0] == 2
    assert (await listed("?state=failed&since=1970-01-01T00:00:00Z"))[0] == 5
    assert (await listed("?state=failed&since=0001-01-01T00:00:00Z"))[0] == 5
    assert (await listed("?workflow=wf_other"))[0] == 0
    total, first = await listed("?state=failed&limit=2")
    assert (total, len(first)) == (5, 2)
    page = await gateway.call("GET", "/v1/automation/runs?state=failed&limit=2")
    assert page.body["next"] == first[-1]
    total, second = await listed(f"?state=failed&limit=2&after={page.body['next']}")
    third = await gateway.call("GET", f"/v1/automation/runs?state=failed&limit=2&after={second[-1]}")
    assert (total, third.body["next"]) == (5, None)
    seen = [*first, *second, *(run["run_id"] for run in third.body["runs"])]
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == 5


async def test_the_list_finds_the_runs_that_stand_at_a_step(gateway: Gateway) -> None:
    now = datetime.now(UTC)
    at_db, passed, live_at_db = _id(now), _id(now - timedelta(minutes=1)), _id(now - timedelta(minutes=2))
    await record(gateway.dsn, at_db, ("create", "succeeded"), ("provision-db", "failed"), ("provision-db", "failed"))
    await insert_ended(gateway.dsn, at_db, state="failed", error_code="E_UPSTREAM_503")
    await record(gateway.dsn, passed, ("provision-db", "failed"), ("provision-db", "succeeded"), ("mail", "failed"))
    await insert_ended(gateway.dsn, passed, state="failed", error_code="E_STEP_FAILED")
    live_at_db = (await gateway.run("k1", input={})).body["run_id"]
    await record(gateway.dsn, live_at_db, ("~run", "opened"), ("provision-db", "failed"))
    answer = await gateway.call("GET", "/v1/automation/runs?step=provision-db")
    assert answer.body["total"] == 2
    assert [run["run_id"] for run in answer.body["runs"]] == sorted([at_db, live_at_db], reverse=True)
    assert {run["current_step"] for run in answer.body["runs"]} == {"provision-db"}
    failed = await gateway.call("GET", "/v1/automation/runs?step=provision-db&state=failed&limit=1")
    assert (failed.body["total"], failed.body["next"]) == (1, None)
    nothing = await gateway.call("GET", "/v1/automation/runs?step=nowhere")
    assert nothing.body == {"total": 0, "runs": [], "next": None}
    beyond = await gateway.call("GET", f"/v1/automation/runs?step=provision-db&after={_id(now - timedelta(days=9))}")
    assert (beyond.body["total"], beyond.body["runs"]) == (2, [])
    everything = await gateway.call("GET", "/v1/automation/runs?state=failed")
    assert [run["current_step"] for run in everything.body["runs"]] == ["provision-db", "mail"]


async def test_the_list_says_what_blocks_a_run(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await record(gateway.dsn, made, ("create", "succeeded"), ("nap", "opened"), ("~run", "blocked"))
    async with await psycopg.AsyncConnection.connect(gateway.dsn, autocommit=True) as conn:
        await conn.execute("update automation.live_runs set state = 'blocked' where run_id = %s", (made,))
        await conn.execute(
            "update automation.step_attempts set error_code = 'E_NONDETERMINISTIC_REPLAY' where status = 'blocked'"
        )
    for query in ("state=blocked", "step=nap"):
        (listed,) = (await gateway.call("GET", f"/v1/automation/runs?{query}")).body["runs"]
        assert (listed["current_step"], listed["error_code"]) == ("nap", "E_NONDETERMINISTIC_REPLAY")


@pytest.mark.parametrize(
    "query",
    ["state=lost", "limit=0", "limit=x", "since=yesterday", "after=run_1", "state=failed&state=failed", "step=%00"],
)
async def test_parameters_that_mean_nothing_are_refused(gateway: Gateway, query: str) -> None:
    answer = await gateway.call("GET", f"/v1/automation/runs?{query}")
    assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")


async def test_one_run_tells_at_which_step_with_which_error_and_from_where_it_goes_on(gateway: Gateway) -> None:
    made = _id(datetime.now(UTC))
    await record(gateway.dsn, made, ("create", "succeeded"), ("provision-db", "failed"))
    await insert_ended(gateway.dsn, made, state="failed", error_code="E_UPSTREAM_503")
    answer = await gateway.call("GET", f"/v1/automation/runs/{made}")
    assert answer.status == 200
    assert answer.body["current_step"] == "provision-db"
    assert answer.body["error"] == {"code": "E_UPSTREAM_503", "message": "the partner answered 503"}
    where = answer.body["where"]
    assert "'provision-db'" in where
    assert "E_UPSTREAM_503" in where
    assert "start it again with a new key" in where
    assert [(row["seq"], row["step_id"], row["status"]) for row in answer.body["attempts"]] == [
        (1, "create", "succeeded"),
        (2, "provision-db", "failed"),
    ]
    assert answer.body["attempts"][0]["result"] == {"id": 1.0}
    assert answer.body["attempts"][0]["started_at"].endswith("Z")


async def test_one_run_tells_what_came_too_late_beside_its_attempts(gateway: Gateway) -> None:
    made = _id(datetime.now(UTC))
    await record(gateway.dsn, made, ("charge", "lost"), ("charge", "succeeded"))
    await record_late(gateway.dsn, made, "charge", '{"id": 7}')
    await record_late(gateway.dsn, made, "charge", '{"id": 8}', project="pj_other")
    await insert_ended(gateway.dsn, made, state="succeeded")
    answer = await gateway.call("GET", f"/v1/automation/runs/{made}")
    assert [row["status"] for row in answer.body["attempts"]] == ["lost", "succeeded"]
    told = [(row["step_id"], row["attempt"], row["status"], row["result"]) for row in answer.body["late_attempts"]]
    assert told == [("charge", 1, "succeeded", {"id": 7})]


async def test_a_run_that_is_accepted_and_not_made_yet_is_told_as_such(gateway: Gateway, secret: str) -> None:
    promised = (await gateway.hook(secret, b"{}", key="k1")).body["run_id"]
    answer = await gateway.call("GET", f"/v1/automation/runs/{promised}")
    assert (answer.status, answer.body["state"]) == (200, "accepted")
    assert "ingest" in answer.body["where"]
    cancelled = await gateway.call("POST", f"/v1/automation/runs/{promised}/cancel", json={})
    assert (cancelled.status, cancelled.headers["Retry-After"]) == (503, "1")


async def test_case_B09_runs_of_another_project_do_not_exist(gateway: Gateway, secret: str) -> None:
    live = (await gateway.run("k1", input={})).body["run_id"]
    promised = (await gateway.hook(secret, b"{}", key="k2")).body["run_id"]
    ended = _id(datetime.now(UTC))
    await insert_ended(gateway.dsn, ended, state="succeeded")
    other = await gateway.tokens.create_token("pj_other", "tests", [WRITE])
    for run in (live, promised, ended):
        for method, path in (("GET", ""), ("GET", "/log"), ("POST", "/cancel")):
            answer = await gateway.call(method, f"/v1/automation/runs/{run}{path}", token=other)
            assert (answer.status, answer.code) == (404, "E_RUN_NOT_FOUND")
    assert (await gateway.call("GET", "/v1/automation/runs", token=other)).body["total"] == 0
    assert (await gateway.call("GET", "/v1/automation/workflows", token=other)).body == []
    assert (await gateway.call("GET", "/v1/automation/triggers", token=other)).body == []
    signed = await gateway.call("POST", "/v1/automation/triggers/trg_settle/sign", data=b"{}", token=other)
    assert (signed.status, signed.code) == (404, "E_TRIGGER_NOT_FOUND")
    started = await gateway.run("k9", token=other)
    assert (started.status, started.code) == (404, "E_WORKFLOW_NOT_FOUND")


@pytest.mark.parametrize("text", ["run_1", "nothing", "run_01J9XQ", "%00", "run_" + "Z" * 26])
async def test_an_id_that_is_none_is_not_found(gateway: Gateway, text: str) -> None:
    for method, path in (("GET", ""), ("GET", "/log"), ("POST", "/cancel")):
        answer = await gateway.call(method, f"/v1/automation/runs/{text}{path}")
        assert (answer.status, answer.code) == (404, "E_RUN_NOT_FOUND")


async def test_a_parked_run_that_is_cancelled_is_ready_again_and_finds_its_mail(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await gateway.rows(
        "update automation.live_runs set state = 'sleeping', visible_at = clock_timestamp() + interval '1 hour'"
    )
    async with await psycopg.AsyncConnection.connect(gateway.dsn, autocommit=True) as listener:
        await listener.execute("listen a44_mail")
        answer = await gateway.call("POST", f"/v1/automation/runs/{made}/cancel", json={"reason": "wrong invoice"})
        heard = [notice.channel async for notice in listener.notifies(timeout=10, stop_after=1)]
    assert (answer.status, answer.body) == (202, {"run_id": made, "status": "cancelling"})
    assert heard == ["a44_mail"]
    [row] = await gateway.rows("select state, ready, grant_class, visible_at, has_mail from automation.live_runs")
    assert row == {"state": "pending", "ready": True, "grant_class": 0, "visible_at": None, "has_mail": True}
    [mail] = await gateway.rows("select run_id, kind, body, actor from automation.run_mail")
    assert (mail["run_id"], mail["kind"], json.loads(mail["body"])) == (made, "cancel", {"reason": "wrong invoice"})
    [audit] = await gateway.rows("select actor, subject from automation.audit_log where action = 'run.cancel'")
    assert audit == {"actor": mail["actor"], "subject": made}
    shown = await gateway.call("GET", f"/v1/automation/runs/{made}")
    assert shown.body["cancel_requested"] is True
    assert "cancellation" in shown.body["where"]


async def test_a_running_run_that_is_cancelled_stays_with_its_session_and_one_wish_is_enough(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await gateway.rows("update automation.live_runs set state = 'running', session_id = 7")
    for _ in range(2):
        assert (await gateway.call("POST", f"/v1/automation/runs/{made}/cancel")).status == 202
    [row] = await gateway.rows("select state, session_id, has_mail from automation.live_runs")
    assert row == {"state": "running", "session_id": 7, "has_mail": True}
    assert len(await gateway.rows("select mail_id from automation.run_mail")) == 1


async def test_a_run_that_waits_for_its_turn_keeps_its_place_when_it_is_cancelled(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await gateway.rows("update automation.live_runs set state = 'pending', ready = false, lane_seq = 5")
    assert (await gateway.call("POST", f"/v1/automation/runs/{made}/cancel")).status == 202
    [row] = await gateway.rows("select state, ready, has_mail from automation.live_runs")
    assert row == {"state": "pending", "ready": False, "has_mail": True}


async def test_an_ended_run_cannot_be_cancelled(gateway: Gateway) -> None:
    ended = _id(datetime.now(UTC))
    await insert_ended(gateway.dsn, ended, state="succeeded")
    answer = await gateway.call("POST", f"/v1/automation/runs/{ended}/cancel", json={})
    assert (answer.status, answer.code, answer.body["state"]) == (409, "E_RUN_ENDED", "succeeded")


async def test_a_reader_cannot_start_or_cancel(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    reader = await gateway.tokens.create_token(PROJECT, "reader", [READ])
    assert (await gateway.call("GET", f"/v1/automation/runs/{made}", token=reader)).status == 200
    refused = [
        await gateway.run("k2", token=reader),
        await gateway.call("POST", f"/v1/automation/runs/{made}/cancel", token=reader),
    ]
    assert [(answer.status, answer.code) for answer in refused] == [(403, "E_SCOPE")] * 2


async def test_the_log_is_told_as_it_grows_and_resumed_where_the_reader_stopped(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await record(gateway.dsn, made, ("create", "succeeded"))
    async with _log(gateway, made) as response:
        events = _events(response)
        first = await anext(events)
        while "comment" in first:  # the record may take longer than a ping
            first = await anext(events)
        assert (first["event"], first["id"]) == ("record", "1.1")
        assert json.loads(first["data"])["step_id"] == "create"
        assert (await anext(events))["comment"] == "ping"
        await record(gateway.dsn, made, ("mail", "succeeded"), start=2)
        await end_run(gateway.dsn, made, state="succeeded", result="{}")
        rest = [event async for event in events if "event" in event]
    assert [(event["event"], event.get("id")) for event in rest] == [("record", "1.2"), ("end", None)]
    assert json.loads(rest[1]["data"]) == {"run_id": made, "state": "succeeded", "ended": True}
    async with _log(gateway, made, {"Last-Event-ID": "1.1"}) as response:
        resumed = [event async for event in _events(response) if "event" in event]
    assert [event.get("id") for event in resumed] == ["1.2", None]


async def test_the_log_without_following_ends_after_what_is_there(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await record(gateway.dsn, made, *[(f"step{number}", "succeeded") for number in range(450)])
    async with _log(gateway, made, query="?follow=false") as response:
        events = [event async for event in _events(response)]
    assert [event.get("id") for event in events] == [*(f"1.{number}" for number in range(1, 451)), None]
    assert json.loads(events[-1]["data"])["state"] == "granted"


async def test_stored_line_ends_stay_inside_one_event(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    await record(gateway.dsn, made, ("create", "succeeded"), result='{\r\n "id":\n 1}')
    async with _log(gateway, made, query="?follow=false") as response:
        events = [event async for event in _events(response)]
    assert [event["event"] for event in events] == ["record", "end"]
    assert json.loads(events[0]["data"])["result"] == {"id": 1}


async def test_a_last_event_id_that_is_none_is_refused(gateway: Gateway) -> None:
    made = (await gateway.run("k1", input={})).body["run_id"]
    answer = await gateway.call("GET", f"/v1/automation/runs/{made}/log", headers={"Last-Event-ID": "x"})
    assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")


def _log(
    gateway: Gateway, run: str, headers: Mapping[str, str] | None = None, query: str = ""
) -> "aiohttp.client._RequestContextManager":
    return gateway.session.get(
        f"{gateway.url}/v1/automation/runs/{run}/log{query}",
        headers={"Authorization": f"Bearer {gateway.token}", **(headers or {})},
    )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    """Server-sent events as their fields; comments as `comment`."""
    assert response.headers["Content-Type"].startswith("text/event-stream")
    fields: dict[str, str] = {}
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if not text:
            yield fields
            fields = {}
            continue
        name, _, value = text.partition(": ")
        name = name or "comment"
        fields[name] = f"{fields[name]}\n{value}" if name in fields else value


def _id(at: datetime) -> str:
    return run_id(PROJECT, new_event_id(int(at.timestamp() * 1000)), "trg_test", 1)
