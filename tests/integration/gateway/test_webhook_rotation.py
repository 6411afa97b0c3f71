"""Two secrets for 48 hours, then one: rotation over real HTTP, with the gateway's own clock."""

import asyncio
import json
from datetime import datetime, timedelta

import pytest

from tests.integration.gateway.conftest import PROJECT, WORKFLOW, Answer, Gateway

OVERLAP = timedelta(hours=48)


async def rotate(gateway: Gateway, trigger: str = "trg_settle", **fields: str) -> Answer:
    return await gateway.call("POST", f"/v1/automation/triggers/{trigger}/rotate", json=fields)


def set_clock(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, moment: datetime) -> str:
    """The database's clock as this gateway has it; the timestamp that is right for it."""
    monkeypatch.setattr(gateway.door, "now", lambda: moment)
    return str(int(moment.timestamp()))


async def test_case_A16_both_secrets_hold_for_48_hours_and_the_old_one_dies_at_the_second(
    gateway: Gateway, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = await rotate(gateway)
    assert rotated.status == 200, rotated.body
    new, ends_at = rotated.body["secret"], datetime.fromisoformat(rotated.body["old_secret_ends_at"])
    assert (len(new), rotated.body["secret_number"]) == (64, 2)
    assert OVERLAP - timedelta(minutes=1) < ends_at - gateway.door.now() <= OVERLAP

    assert [(await gateway.hook(one, b"{}", key=f"now:{one}")).status for one in (new, secret)] == [202, 202]
    stamp = set_clock(gateway, monkeypatch, ends_at - timedelta(microseconds=1))
    late = [(await gateway.hook(one, b"{}", key=f"late:{one}", timestamp=stamp)).status for one in (new, secret)]
    assert late == [202, 202]
    assert gateway.measures.value("webhook_verified_total", "newest") == 2
    assert gateway.measures.value("webhook_verified_total", "old") == 2
    assert gateway.measures.value("webhook_rejected_total", "E_SIGNATURE") == 0

    stamp = set_clock(gateway, monkeypatch, ends_at)
    dead = await gateway.hook(secret, b"{}", key="dead", timestamp=stamp)
    assert (dead.status, dead.code) == (401, "E_SIGNATURE")
    assert gateway.measures.value("webhook_rejected_total", "E_SIGNATURE") == 1
    assert (await gateway.hook(new, b"{}", key="alive", timestamp=stamp)).status == 202
    never = await gateway.hook("0" * 64, b"{}", timestamp=stamp)
    assert never.body["detail"] == dead.body["detail"]


async def test_case_A16_a_second_rotation_ends_nothing_unless_it_says_what(gateway: Gateway, secret: str) -> None:
    second = (await rotate(gateway)).body["secret"]
    refused = await rotate(gateway)
    assert (refused.status, refused.code) == (409, "E_ROTATION_UNDERWAY")
    assert [(await gateway.hook(one, b"{}", key=one)).status for one in (secret, second)] == [202, 202]

    third = await rotate(gateway, end="newest")
    assert datetime.fromisoformat(third.body["old_secret_ends_at"]) > gateway.door.now() + timedelta(hours=47)
    tried = [secret, second, third.body["secret"]]
    assert [(await gateway.hook(one, b"{}", key=f"3{one}")).status for one in tried] == [202, 401, 202]

    fourth = await rotate(gateway, end="old")
    assert fourth.body["old_secret_ends_at"] is None
    tried += [fourth.body["secret"]]
    assert [(await gateway.hook(one, b"{}", key=f"4{one}")).status for one in tried] == [401, 401, 401, 202]
    assert len(set(tried)) == 4


async def test_case_A16_a_secret_that_died_with_its_trigger_stays_dead_when_the_trigger_comes_back(
    gateway: Gateway, secret: str
) -> None:
    hookless = WORKFLOW.replace("version: 1", "version: 2").replace("  webhook: {id: trg_settle}\n", "")
    await gateway.publish({"settle.yaml": hookless})
    gone = await rotate(gateway)
    assert (gone.status, gone.code) == (404, "E_TRIGGER_NOT_FOUND")
    again = await gateway.publish({"settle.yaml": WORKFLOW.replace("version: 1", "version: 3")})
    [hook] = again.body["webhooks"]
    assert hook["secret"] != secret
    assert (await gateway.hook(secret, b"{}")).status == 401
    assert (await gateway.hook(hook["secret"], b"{}")).status == 202


async def test_of_two_rotations_at_once_one_is_refused(gateway: Gateway, secret: str) -> None:
    answers = await asyncio.gather(*(rotate(gateway) for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409]
    assert (await gateway.hook(secret, b"{}")).status == 202


async def test_a_rotation_is_audited_with_who_and_what_and_no_secret(gateway: Gateway, secret: str) -> None:
    rotated = await rotate(gateway)
    await rotate(gateway)
    rows = await gateway.rows("select * from automation.audit_log where action = 'webhook.rotate'")
    assert [(row["project_id"], row["subject"]) for row in rows] == [(PROJECT, "trg_settle")]
    assert rows[0]["actor"].startswith("tok_")
    details = json.loads(rows[0]["details"])
    assert (details["number"], details["ended"], details["old"]["number"]) == (2, [], 1)
    stored = await gateway.rows("select s::text as text from automation.webhook_secrets s")
    told = str(rows) + str(stored)
    assert not [one for one in (secret, rotated.body["secret"]) if one in told]


async def test_triggers_show_their_secrets_by_number_and_signing_takes_the_newest(
    gateway: Gateway, secret: str
) -> None:
    new = (await rotate(gateway)).body
    listed = (await gateway.call("GET", "/v1/automation/triggers")).body
    [hook] = [one for one in listed if one["trigger_id"] == "trg_settle"]
    assert [one["number"] for one in hook["secrets"]] == [2, 1]
    assert [one["ends_at"] for one in hook["secrets"]] == [None, new["old_secret_ends_at"]]
    await rotate(gateway, end="old")
    signed = (await gateway.call("POST", "/v1/automation/triggers/trg_settle/sign", data=b"{}")).body
    sent = {name: signed[name] for name in ("A44-Timestamp", "A44-Signature")}
    answer = await gateway.call(
        "POST", signed["path"], data=b"{}", headers={**sent, "Content-Type": "application/json"}
    )
    assert answer.status == 202


async def test_who_may_only_read_or_names_no_webhook_rotates_nothing(gateway: Gateway, secret: str) -> None:
    reader = await gateway.tokens.create_token(PROJECT, "reader", ["automation:read"])
    path = "/v1/automation/triggers/trg_settle/rotate"
    assert (await gateway.call("POST", path, json={}, token=reader)).code == "E_SCOPE"
    other = await gateway.tokens.create_token("pj_other", "tests", ["automation:write"])
    assert (await gateway.call("POST", path, json={}, token=other)).code == "E_TRIGGER_NOT_FOUND"
    for trigger in ("trg_none", "trg_invoice_settle_event", "trg_%00"):
        assert (await rotate(gateway, trigger)).code == "E_TRIGGER_NOT_FOUND"
    for fields in ({"end": "both"}, {"stop": "old"}):
        assert (await rotate(gateway, **fields)).code == "E_INVALID_PARAMETER"
    assert len(await gateway.rows("select number from automation.webhook_secrets")) == 1
