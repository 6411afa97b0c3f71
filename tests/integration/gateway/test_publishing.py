"""Publishing through the API: versions that never change, triggers that follow their file, references that hold."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.ports.tokens import READ
from schemas.errors import Refused
from tests.integration.gateway.conftest import PROJECT, WORKFLOW, Answer, Gateway

CODE = """
from anthares44.automation import workflow, step
import api

@workflow("tenant-onboard", version=4, trigger={"event": "tenant.signed"})
async def onboard(ctx, input):
    return await step.run("create-tenant", timeout="10s", fn=lambda: api.create(input["name"]))
"""


def _changes(answer: Answer) -> dict[str, str]:
    assert answer.status == 200, answer.body
    return {item["id"]: item["change"] for item in answer.body["published"]}


def _with(text: str, **parts: str) -> str:
    for old, new in parts.items():
        text = text.replace(*{"version": ("version: 1", f"version: {new}"), "step": ("id: pause", f"id: {new}")}[old])
    return text


async def test_a_new_version_is_in_force_at_once_and_publishing_it_again_changes_nothing(gateway: Gateway) -> None:
    first = await gateway.publish({"settle.yaml": WORKFLOW})
    assert _changes(first) == {
        "wf_invoice_settle": "created",
        "trg_invoice_settle_event": "created",
        "trg_settle": "created",
    }
    again = await gateway.publish({"settle.yaml": WORKFLOW})
    assert set(_changes(again).values()) == {"unchanged"}
    listed = await gateway.call("GET", "/v1/automation/workflows")
    assert [(one["workflow_id"], one["version"], one["kind"]) for one in listed.body] == [
        ("wf_invoice_settle", "1", "yaml")
    ]
    assert listed.body[0]["published_at"].endswith("Z")
    triggers = await gateway.call("GET", "/v1/automation/triggers")
    assert triggers.body == [
        {
            "trigger_id": "trg_invoice_settle_event",
            "type": "event",
            "workflow_id": "wf_invoice_settle",
            "version": "1",
            "event": "billing.invoice.finalized",
        },
        {
            "trigger_id": "trg_settle",
            "type": "webhook",
            "workflow_id": "wf_invoice_settle",
            "version": "1",
            "path": f"/v1/{PROJECT}/trg_settle",
            "verify": "a44",
            "secrets": [{"number": 1, "ends_at": None}],
        },
    ]


async def test_a_secret_is_told_once_and_stays_the_same(gateway: Gateway) -> None:
    first = await gateway.publish({"settle.yaml": WORKFLOW})
    [hook] = first.body["webhooks"]
    assert len(hook["secret"]) == 64
    second = await gateway.publish({"settle.yaml": _with(WORKFLOW, version="2")})
    assert second.body["webhooks"] == [{"trigger_id": "trg_settle", "path": hook["path"]}]
    assert (await gateway.hook(hook["secret"], b"{}")).status == 202


async def test_other_content_under_a_published_version_is_refused_and_names_the_way_out(gateway: Gateway) -> None:
    await gateway.publish({"settle.yaml": WORKFLOW})
    answer = await gateway.publish({"settle.yaml": _with(WORKFLOW, step="wait")})
    assert (answer.status, answer.code) == (409, "E_VERSION_EXISTS")
    assert "raise `version` to 2" in answer.body["detail"]
    changed_filter = WORKFLOW.replace("finalized\n", "finalized\n  filter: data.a > 1\n")
    assert (await gateway.publish({"settle.yaml": changed_filter})).code == "E_VERSION_EXISTS"


async def test_comments_and_layout_are_no_content(gateway: Gateway) -> None:
    await gateway.publish({"settle.yaml": WORKFLOW})
    answer = await gateway.publish({"settle.yaml": "# reviewed\n" + WORKFLOW.replace("1s", "1000ms")})
    assert _changes(answer)["wf_invoice_settle"] == "unchanged"


async def test_one_bad_file_publishes_nothing(gateway: Gateway) -> None:
    answer = await gateway.publish({"a.yaml": WORKFLOW, "b.yaml": "name: other\nversion: 1\nsteps: []\n"})
    assert answer.status == 422
    assert answer.body["place"]["file"] == "b.yaml"
    assert (await gateway.call("GET", "/v1/automation/workflows")).body == []


async def test_case_A09_a_file_with_the_same_key_twice_is_refused_with_its_place(gateway: Gateway) -> None:
    answer = await gateway.publish({"settle.yaml": WORKFLOW + "version: 2\n"})
    assert answer.status == 422
    assert answer.body["place"] == {"file": "settle.yaml", "line": WORKFLOW.count("\n") + 1, "column": 1}


@pytest.mark.parametrize(
    "body",
    [
        b'{"files": {"a.yaml": "queues: []"}, "files": {}}',
        b'{"files": {"a.yaml": "queues: []", "a.yaml": ""}}',
        b'{"files": {"a.yaml": "queues: []", "\\u0061.yaml": ""}}',
    ],
    ids=["twice the files", "a file twice", "a file twice, once by its number"],
)
async def test_case_A09_json_with_the_same_key_twice_is_refused_and_nothing_is_published(
    gateway: Gateway, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await gateway.call("POST", "/v1/automation/publish", data=body, headers=headers)
    assert (answer.status, answer.code) == (422, "E_DUPLICATE_KEY")
    assert await gateway.rows("select catalog_version from automation.installation") == [{"catalog_version": 1}]


async def test_case_A09_a_workflow_file_in_json_with_the_same_key_twice_is_refused_too(gateway: Gateway) -> None:
    answer = await gateway.publish({"settle.yaml": '{"name": "settle", "version": 1, "version": 2, "steps": []}'})
    assert answer.status == 422
    assert answer.body["place"] == {"file": "settle.yaml", "line": 1, "column": 34}


async def test_a_connector_that_is_published_nowhere_is_refused_until_it_is(gateway: Gateway) -> None:
    workflow = (
        "name: pay\nversion: 1\nsteps:\n  - id: authorize\n    uses: connector/payments.authorize\n    timeout: 5s\n"
    )
    missing = await gateway.publish({"pay.yaml": workflow})
    assert (missing.status, missing.code) == (422, "E_CONNECTOR_UNKNOWN")
    connector = (
        "- id: con_payments\n  type: http\n  baseUrl: http://127.0.0.1:9\n"
        "  operations:\n    authorize: {method: POST, path: /authorizations}\n"
    )
    assert _changes(await gateway.publish({"connectors.yaml": connector})) == {"con_payments": "created"}
    assert (await gateway.publish({"pay.yaml": workflow})).status == 200


async def test_triggers_of_a_file_follow_its_newest_version(gateway: Gateway, secret: str) -> None:
    hookless = _with(WORKFLOW, version="2").replace("  webhook: {id: trg_settle}\n", "")
    second = await gateway.publish({"settle.yaml": hookless})
    assert _changes(second) == {
        "wf_invoice_settle": "updated",
        "trg_invoice_settle_event": "updated",
        "trg_settle": "removed",
    }
    assert (await gateway.hook(secret, b"{}")).status == 401
    late = await gateway.publish({"settle.yaml": WORKFLOW})
    assert _changes(late) == {"wf_invoice_settle": "unchanged"}
    assert "stays the latest" in late.body["warnings"][0]


async def test_a_trigger_id_belongs_to_one_file(gateway: Gateway) -> None:
    await gateway.publish({"settle.yaml": WORKFLOW})
    answer = await gateway.publish({"t.yaml": "- id: trg_settle\n  type: webhook\n  workflow: wf_invoice_settle\n"})
    assert (answer.status, answer.code) == (422, "E_SPEC_INVALID")
    assert "wf_invoice_settle" in answer.body["detail"]


async def test_concurrency_makes_a_queue_and_the_default_queue_exists(gateway: Gateway) -> None:
    workflow = WORKFLOW + 'concurrency: {max: 25, partitionKey: "{{ input.invoiceId }}"}\n'
    assert _changes(await gateway.publish({"settle.yaml": workflow}))["q_invoice_settle"] == "created"
    rows = await gateway.rows("select * from automation.queues order by queue_id")
    assert [(row["queue_id"], row["max_concurrency"], row["ordering"], row["max_attempts"]) for row in rows] == [
        ("q_default", 100, "none", 5),
        ("q_invoice_settle", 25, "by-partition", 5),
    ]


async def test_while_developing_a_save_makes_a_revision_and_only_when_content_changed(gateway: Gateway) -> None:
    async def saved(text: str, *, dev: bool = True) -> tuple[str, str]:
        answer = await gateway.publish({"settle.yaml": text}, dev=dev)
        item = next(item for item in answer.body["published"] if item["kind"] == "workflow")
        return item["version"], item["change"]

    assert await saved(WORKFLOW) == ("1-dev.1", "created")
    assert await saved(WORKFLOW) == ("1-dev.1", "unchanged")
    assert await saved(_with(WORKFLOW, step="wait")) == ("1-dev.2", "updated")
    assert await saved(WORKFLOW) == ("1-dev.3", "updated")
    assert await saved(WORKFLOW, dev=False) == ("1", "updated")
    assert await saved(WORKFLOW) == ("1", "unchanged")
    assert await saved(_with(WORKFLOW, step="rest")) == ("1-dev.4", "updated")
    latest = await gateway.run("k1", input={})
    named = await gateway.run("k2", input={}, version="1-dev.2")
    released = await gateway.run("k3", input={}, version=1)
    rows = await gateway.rows("select run_id, version from automation.live_runs")
    versions = {row["run_id"]: row["version"] for row in rows}
    assert [versions[answer.body["run_id"]] for answer in (latest, named, released)] == ["1-dev.4", "1-dev.2", "1"]


async def test_a_code_workflow_is_stored_with_the_modules_it_imports(gateway: Gateway) -> None:
    files = {"flows/onboard.py": CODE, "flows/api.py": "def create(name):\n    return {'id': name}\n"}
    assert _changes(await gateway.publish(files))["wf_tenant_onboard"] == "created"
    async with open_pool(gateway.dsn, "test") as pool:
        catalog = PostgresCatalog(pool)
        definition = (await catalog.snapshot()).latest[PROJECT, "wf_tenant_onboard"]
        spec, kind, digest = await catalog.definition(definition.definition_id)
        assert kind == "code"
        assert digest is not None
        bundle = await catalog.bundle(PROJECT, digest)
        assert bundle == {"onboard.py": CODE, "api.py": files["flows/api.py"]}
        assert definition.spec.entry == "onboard.py"
        assert spec == definition.spec_text
        with pytest.raises(Refused, match="E_BUNDLE_INVALID"):
            await catalog.bundle("pj_other", digest)


async def test_publications_at_the_same_time_do_not_mix(gateway: Gateway) -> None:
    texts = [_with(WORKFLOW, step=f"step{number}") for number in range(6)]
    answers = await asyncio.gather(*(gateway.publish({"settle.yaml": text}) for text in texts))
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409, 409]
    versions = await gateway.rows("select catalog_version from automation.installation")
    assert versions[0]["catalog_version"] == 2


async def test_publishing_needs_the_write_scope_and_is_audited(gateway: Gateway) -> None:
    reader = await gateway.tokens.create_token(PROJECT, "reader", [READ])
    refused = await gateway.publish({"settle.yaml": WORKFLOW}, token=reader)
    assert (refused.status, refused.code) == (403, "E_SCOPE")
    await gateway.publish({"settle.yaml": WORKFLOW})
    rows = await gateway.rows("select actor, details from automation.audit_log where action = 'publish'")
    assert rows[0]["actor"].startswith("tok_")
    assert "wf_invoice_settle" in rows[0]["details"]


@pytest.mark.parametrize(
    "body", [{}, {"files": {}}, {"files": {"a.yaml": 1}}, {"files": {"a.yaml": "x"}, "devel": True}, []]
)
async def test_a_publication_that_is_none_is_refused(gateway: Gateway, body: Mapping[str, Any]) -> None:
    answer = await gateway.call("POST", "/v1/automation/publish", json=body)
    assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")


async def test_signing_gives_headers_that_the_door_takes_and_never_the_secret(gateway: Gateway, secret: str) -> None:
    body = b'{"invoiceId":  "inv_1"}'
    signed = await gateway.call("POST", "/v1/automation/triggers/trg_settle/sign", data=body)
    assert signed.status == 200
    assert secret not in str(signed.body)
    sent = {name: signed.body[name] for name in ("A44-Timestamp", "A44-Signature")}
    answer = await gateway.call(
        "POST", signed.body["path"], data=body, headers={**sent, "Content-Type": "application/json"}
    )
    assert answer.status == 202
    unknown = await gateway.call("POST", "/v1/automation/triggers/trg_invoice_settle_event/sign", data=body)
    assert (unknown.status, unknown.code) == (404, "E_TRIGGER_NOT_FOUND")
    assert unknown.body["detail"].endswith("`a44 automation triggers` lists them")
