"""The guide's workflow as printed, interpreted with the real actions: a partner's server and a real Postgres."""

import json
from collections.abc import AsyncIterator

import psycopg
import pytest_asyncio

from processors.adapters.http import open_http_connector
from processors.adapters.postgres.project_sql import ProjectSql
from processors.ports.bodies import BodyStart
from processors.runtime.yaml_body import CONNECTOR, SQL, YamlBodies
from tests.support.action_calls import SecretsInMemory
from tests.support.partner import Partner, running_partner
from tests.support.yaml_listener import RememberingListener
from tests.support.yaml_runs import MOMENT, RUN_ID
from topology.connectors import ConnectorSpec
from topology.publication import read_files
from topology.workflows import WorkflowSpec

WORKFLOW = """
name: invoice-settle
version: 3
trigger:
  event: billing.invoice.finalized
concurrency:
  max: 25
  partitionKey: "{{ input.invoiceId }}"
steps:
  - id: reserve-funds
    uses: connector/payments.authorize
    timeout: 15s
    retry: { max: 5, strategy: exponential-jitter }
    compensate: connector/payments.void
  - id: mark-paid
    uses: sql/execute
    timeout: 5s
    query: "update invoices set status='paid' where id = $1"
"""
CONNECTORS = """
- id: con_payments
  type: http
  baseUrl: { secretRef: sec_payments_url }
  auth: { kind: bearer, secretRef: sec_payments }
  operations:
    authorize: { method: POST, path: "/authorizations", body: "{{ input }}" }
    void: { method: DELETE, path: "/authorizations/{{ input.invoiceId }}" }
"""


@pytest_asyncio.fixture
async def partner() -> AsyncIterator[Partner]:
    async with running_partner() as found:
        yield found


async def test_the_guides_workflow_runs_as_printed(partner: Partner, database: str):
    published = read_files({"invoice-settle.yaml": WORKFLOW, "connectors.yaml": CONNECTORS})
    secrets = SecretsInMemory({"sec_payments_url": partner.url, "sec_payments": "key-1", "sec_database": database})
    spec = WorkflowSpec.from_json(published.workflows[0].to_json())

    async def definition(_: int) -> WorkflowSpec:
        return spec

    async def connector_of(_: str, __: str) -> ConnectorSpec:
        return published.connectors[0]

    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as shop:
        await shop.execute("create table invoices (id text primary key, status text)")
        await shop.execute("insert into invoices values ('inv_8812', 'open'), ('inv_9', 'open')")
        partner.reply(201, '{"id": "auth_77", "token": "hush"}', "application/json")
        listener = RememberingListener()
        sql = ProjectSql(secrets)
        async with open_http_connector(connector_of, secrets, allow_private_egress=True) as connector:
            bodies = YamlBodies(listener, definition, {CONNECTOR: connector, SQL: sql})
            bodies.start(_start())
            await listener.next("turned")
            assert (await listener.next("succeeded"))[3] == '{"id":"auth_77","token":"[redacted]"}'
            bodies.deliver(RUN_ID, 1, 1, "reserve-funds", "succeeded", None, None, MOMENT, float("inf"))
            await listener.next("turned")
            assert (await listener.next("succeeded"))[3] == '{"rowcount":1,"rows":[]}'
            bodies.deliver(RUN_ID, 1, 2, "mark-paid", "succeeded", None, None, MOMENT, float("inf"))
            _, _, end = await listener.next("turned")
            await bodies.aclose()
        await sql.aclose()
        rows = await (await shop.execute("select id, status from invoices order by id")).fetchall()

    assert end.value == ('{"reserve-funds":{"id":"auth_77","token":"[redacted]"},"mark-paid":{"rowcount":1,"rows":[]}}')
    assert rows == [("inv_8812", "paid"), ("inv_9", "open")]
    [asked] = partner.asked
    assert json.loads(asked.body) == {"invoiceId": "inv_8812", "amountCents": 249900}
    assert asked.headers["Authorization"] == "Bearer key-1"
    assert asked.headers["Idempotency-Key"] == f"{RUN_ID}:reserve-funds:g1"


def _start() -> BodyStart:
    return BodyStart(
        run_id=RUN_ID, fence=1, project_id="pj_shop", workflow_id="wf_invoice_settle", definition_id=1, version="3",
        kind="yaml", generation=1, input='{"invoiceId":"inv_8812","amountCents":249900}', started_at=MOMENT,
        idempotency_key="invoice:inv_8812:finalized:v1", partition_key="cust_4471", lane="inv_8812",
        event_id="evt_01J9XQ7M4K", event_type="billing.invoice.finalized", occurred_at=MOMENT, history=(),
        go_until=float("inf"),
    )  # fmt: skip
