"""Webhooks of others, each signed in its own way, over real HTTP: what is taken, under which key, what is refused."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from processors.gateway.keys import MAX_LENGTH
from processors.gateway.senders import SENDERS, Draft
from schemas.errors import Refused
from tests.integration.gateway.conftest import PROJECT, WORKFLOW, Answer, Gateway

HANDED_OUT = {"stripe": "whsec_stripe", "slack": "8f742231b10e", "shopify": "hush"}
EVENT = {"id": "evt_1", "event_id": "Ev1", "pending_webhooks": 2, "note": "a\u00e9"}
TAKEN = ["standard-webhooks", "github", "stripe", "slack", "shopify"]


class Kept(dict[str, str]):
    """The port `Secrets`, in memory."""

    def get(self, project: str, name: str) -> str:  # type: ignore[override]
        if project != PROJECT or name not in self:
            raise Refused("E_SECRET_UNKNOWN", f"{name} of {project} is not set")
        return self[name]


@pytest.fixture
def kept() -> Kept:
    return Kept({f"sec_{name}": secret for name, secret in HANDED_OUT.items()})


class Hook:
    """One trigger and what its sender knows."""

    def __init__(self, gateway: Gateway, name: str, secret: str) -> None:
        self.gateway, self.sender, self.secret = gateway, SENDERS[name], secret
        self.trigger = f"trg_{name.replace('-', '_')}"

    async def send(
        self, data: Any, delivery: str = "d1", *, at: int = 0, headers: Mapping[str, str] | None = None
    ) -> Answer:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        signed = self.sender.headers(self.secret, Draft(body, str(int(time.time()) + at), delivery))
        told = {"Content-Type": "application/json", **signed, **(headers or {})}
        url = f"{self.gateway.url}/v1/{PROJECT}/{self.trigger}"
        async with self.gateway.session.post(url, data=body, headers=told) as response:
            return Answer(response.status, response.headers, await response.json(content_type=None))


async def declared(gateway: Gateway, name: str, more: str = "") -> Hook:
    ref = f"{{preset: {name}, secretRef: sec_{name}}}" if name in HANDED_OUT else name
    trigger = (
        f"- id: trg_{name.replace('-', '_')}\n  type: webhook\n  workflow: wf_invoice_settle\n  verify: {ref}\n{more}"
    )
    answer = await gateway.publish({"settle.yaml": WORKFLOW, "hooks.yaml": trigger})
    assert answer.status == 200, answer.body
    [hook] = [one for one in answer.body["webhooks"] if one["trigger_id"] != "trg_settle"]
    assert ("secret" in hook) is (name not in HANDED_OUT)
    return Hook(gateway, name, HANDED_OUT.get(name) or hook["secret"])


@pytest.mark.parametrize("name", TAKEN)
async def test_a_delivery_is_taken_once_by_its_own_id(gateway: Gateway, name: str) -> None:
    hook = await declared(gateway, name)
    first, again = await hook.send(EVENT), await hook.send(EVENT)
    assert (first.status, again.status) == (202, 200), (first.body, again.body)
    assert first.body["key_source"] == again.body["key_source"] == "delivery"
    assert again.body["run_id"] == first.body["run_id"]
    other = await hook.send({**EVENT, "id": "evt_2", "event_id": "Ev2"}, "d2")
    assert (other.status, other.body["run_id"] != first.body["run_id"]) == (202, True)
    told = {"stripe": "evt_1", "slack": "Ev1"}.get(name, "d1")
    keys = await gateway.rows("select idempotency_key as key from automation.idempotency_keys order by accepted_at")
    assert keys[0]["key"] == f"{hook.trigger}:{told}"


@pytest.mark.parametrize("name", TAKEN)
async def test_what_does_not_fit_is_answered_like_a_trigger_that_is_not_there(gateway: Gateway, name: str) -> None:
    hook = await declared(gateway, name)
    nowhere = Hook(gateway, name, hook.secret)
    nowhere.trigger = "trg_nothing"
    forger = Hook(gateway, name, hook.sender.shown("11" * 32))
    ours = Hook(gateway, "a44", hook.secret)
    ours.trigger = hook.trigger
    twice = [forger.send(EVENT), forger.send(b"not json"), nowhere.send(EVENT), ours.send(EVENT)]
    answers = [await one for one in twice]
    assert {(one.status, one.code, one.body["detail"]) for one in answers} == {
        (401, "E_SIGNATURE", answers[0].body["detail"])
    }
    assert await gateway.rows("select 1 from automation.outbox") == []
    assert gateway.measures.value("webhook_rejected_total", "E_SIGNATURE") == 4


@pytest.mark.parametrize("name", ["standard-webhooks", "stripe", "slack"])
@pytest.mark.parametrize("off", [-600, 600])
async def test_a_sender_that_signs_the_time_has_300_seconds(gateway: Gateway, name: str, off: int) -> None:
    hook = await declared(gateway, name)
    answer = await hook.send(EVENT, at=off)
    assert (answer.status, answer.code) == (408, "E_TIMESTAMP_SKEW")
    assert str(hook.sender.time_header) in answer.body["detail"]


@pytest.mark.parametrize("name", TAKEN)
async def test_the_body_is_read_after_the_signature_fitted(gateway: Gateway, name: str) -> None:
    hook = await declared(gateway, name)
    answer = await hook.send(b'{"id": "evt_1", "event_id": "Ev1", "a": 1, "a": 2}')
    assert (answer.status, answer.code) == (422, "E_DUPLICATE_KEY")


async def test_one_id_to_two_addresses_is_two_runs(gateway: Gateway) -> None:
    hook = await declared(gateway, "standard-webhooks")
    second = "- {id: trg_second, type: webhook, workflow: wf_invoice_settle, verify: standard-webhooks}\n"
    answer = await gateway.publish({"second.yaml": second})
    other = Hook(gateway, "standard-webhooks", answer.body["webhooks"][0]["secret"])
    other.trigger = "trg_second"
    assert [(await one.send(EVENT)).status for one in (hook, other)] == [202, 202]


async def test_another_body_under_one_id_is_a_conflict_except_where_the_id_is_the_event(gateway: Gateway) -> None:
    """Stripe sends an event again with another count of endpoints that wait for it."""
    stripe, github = await declared(gateway, "stripe"), await declared(gateway, "github")
    changed = {**EVENT, "pending_webhooks": 1}
    assert [(await stripe.send(body)).status for body in (EVENT, changed)] == [202, 200]
    assert [(await github.send(body)).status for body in (EVENT, changed)] == [202, 422]


async def test_slack_s_question_is_answered_once_its_signature_fitted_and_makes_nothing(gateway: Gateway) -> None:
    hook = await declared(gateway, "slack", "  requireIdempotencyKey: true\n")
    question = {"token": "x", "type": "url_verification", "challenge": "3eZbrw1a"}
    answer = await hook.send(question)
    assert (answer.status, answer.body) == (200, {"challenge": "3eZbrw1a"})
    forger = Hook(gateway, "slack", "other")
    assert (await forger.send(question)).status == 401
    form = await hook.send(b"command=%2Fx", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (form.status, form.code) == (415, "E_UNSUPPORTED_MEDIA_TYPE")
    keyless = await hook.send({"type": "event_callback"})
    assert (keyless.status, keyless.code) == (400, "E_IDEMPOTENCY_KEY_REQUIRED")
    assert await gateway.rows("select 1 from automation.idempotency_keys") == []


@pytest.mark.parametrize("delivery", ["", "x" * MAX_LENGTH, "a\u0085b"])
async def test_an_id_that_is_no_key_is_refused_and_none_falls_back_to_the_body(gateway: Gateway, delivery: str) -> None:
    hook = await declared(gateway, "github")
    answer = await hook.send(EVENT, delivery)
    if delivery:
        assert (answer.status, answer.code) == (400, "E_IDEMPOTENCY_KEY_INVALID")
    else:
        assert (answer.status, answer.body["key_source"]) == (202, "body")


async def test_a_handed_out_secret_changes_at_the_next_request_and_its_elder_is_taken_beside_it(
    gateway: Gateway, kept: Kept
) -> None:
    both = "{preset: shopify, secretRef: sec_shopify, oldSecretRef: sec_before}"
    trigger = f"- {{id: trg_shopify, type: webhook, workflow: wf_invoice_settle, verify: {both}}}\n"
    assert (await gateway.publish({"settle.yaml": WORKFLOW, "hooks.yaml": trigger})).status == 200
    old, new = Hook(gateway, "shopify", "hush"), Hook(gateway, "shopify", "anew")
    kept["sec_before"], kept["sec_shopify"] = "hush", "anew"
    assert [(await one.send(EVENT, f"d{number}")).status for number, one in enumerate((old, new))] == [202, 202]
    assert [gateway.measures.value("webhook_verified_total", age) for age in ("newest", "old")] == [1, 1]
    del kept["sec_before"]
    assert (await old.send(EVENT, "d3")).status == 401
    kept.clear()
    assert (await new.send(EVENT, "d4")).status == 401
    rotated = await gateway.call("POST", "/v1/automation/triggers/trg_shopify/rotate", json={})
    assert (rotated.status, rotated.code) == (400, "E_INVALID_PARAMETER")
    assert "sec_shopify" in rotated.body["detail"]


@pytest.mark.parametrize("name", ["standard-webhooks", "github"])
async def test_case_A16_a_secret_made_here_for_another_s_form_is_rotated_like_ours(gateway: Gateway, name: str) -> None:
    hook = await declared(gateway, name)
    rotated = await gateway.call("POST", f"/v1/automation/triggers/{hook.trigger}/rotate", json={})
    assert rotated.body["secret"].startswith("whsec_") is (name == "standard-webhooks")
    newest = Hook(gateway, name, rotated.body["secret"])
    assert [(await one.send(EVENT, f"d{number}")).status for number, one in enumerate((hook, newest))] == [202, 202]


@pytest.mark.parametrize("name", TAKEN)
async def test_signing_on_behalf_gives_the_sender_s_own_headers(gateway: Gateway, name: str) -> None:
    hook = await declared(gateway, name)
    body = json.dumps(EVENT).encode()
    path = f"/v1/automation/triggers/{hook.trigger}/sign"
    signed = (await gateway.call("POST", path, data=body)).body
    door = signed.pop("path")
    assert not set(signed) & {"A44-Signature", "A44-Timestamp"}
    sent = {**signed, "Content-Type": "application/json"}
    answers = [await gateway.call("POST", door, data=body, headers=sent) for _ in range(2)]
    assert [(one.status, one.body["key_source"]) for one in answers] == [(202, "delivery"), (200, "delivery")]
    keyed = await gateway.call("POST", f"{path}?key=mine", data=body)
    assert keyed.status == (400 if name in ("stripe", "slack") else 200)
    timed = await gateway.call("POST", f"{path}?timestamp=1", data=body)
    assert timed.status == (400 if name in ("github", "shopify") else 200)


async def test_a_webhook_that_goes_over_to_a_handed_out_secret_loses_its_own_for_good(gateway: Gateway) -> None:
    ours = await declared(gateway, "github")
    verify = "{preset: github, secretRef: sec_slack}"
    theirs = f"- {{id: trg_github, type: webhook, workflow: wf_invoice_settle, verify: {verify}}}\n"
    assert (await gateway.publish({"hooks.yaml": theirs})).status == 200
    assert (await ours.send(EVENT, "d1")).status == 401
    assert (await Hook(gateway, "github", HANDED_OUT["slack"]).send(EVENT, "d2")).status == 202
    back = await declared(gateway, "github")
    assert back.secret != ours.secret
    assert [(await one.send(EVENT, f"b{number}")).status for number, one in enumerate((ours, back))] == [401, 202]
