"""Keys: silent for the same payload, refused for another, at the door and again from Kafka; never across tenants."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import closing

import pytest
import pytest_asyncio
from confluent_kafka import Producer

from ops.client import Client
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.tokens import PostgresTokens
from schemas.errors import Refused
from tests.acceptance.durable_pipelines.relayops import PATIENCE, PIPELINE, QUEUES, RelayOps, Tenant, operation_key
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
LETTERS = "select error_code, reason, summary, raw from automation.dead_letters where raw like %s"


@pytest_asyncio.fixture(loop_scope="session")
async def tenant_b(relayops: RelayOps) -> AsyncIterator[Tenant]:
    """Another project on the same installation, with the same pipeline."""
    async with open_pool(relayops.stack.log_dsn, "tests", size=1) as pool:
        scopes = ("automation:read", "automation:write")
        token = await PostgresTokens(pool).create_token("tenant-b", "tests", scopes)
    with closing(Client(relayops.stack.url, token)) as client:
        client.publish({"document.py": PIPELINE.format(ledger=str(relayops.ledger)), "queues.yaml": QUEUES})
        yield Tenant("tenant-b", client)


def produce(relayops: RelayOps, event: str, key: str, data: Mapping[str, object]) -> None:
    """A record of a producer's own, straight to the events topic."""
    envelope = {
        "id": event,
        "type": "document.received",
        "idempotency_key": key,
        "partition_key": "one",  # in one partition, so read in this order
        "occurred_at": "2026-07-19T14:00:00Z",
        "project_id": "relayops",
        "data": data,
    }
    producer = Producer({"bootstrap.servers": relayops.stack.kafka_bootstrap})
    producer.produce("a44.events.v1", key="one", value=json.dumps(envelope))
    assert producer.flush(30) == 0


async def test_the_same_key_with_the_same_payload_is_the_first_result(relayops: RelayOps) -> None:
    document = "invoice-twice"
    first = await relayops.tenant.send(document, total=10)
    await relayops.tenant.ended(document)
    second = await relayops.tenant.send(document, total=10)
    assert (first.status, first.document["status"]) == (202, "created")
    assert (second.status, second.document["status"]) == (200, "deduplicated")
    assert second.document["event_id"] == first.document["event_id"]
    by_hand = await relayops.tenant.run("invoice-by-hand", total=10)
    assert await relayops.tenant.run("invoice-by-hand", total=10) == by_hand
    await relayops.tenant.ended("invoice-by-hand")
    assert (relayops.extractions(document), relayops.extractions("invoice-by-hand")) == (1, 1)


async def test_the_same_key_with_another_payload_is_refused_at_the_door(relayops: RelayOps) -> None:
    document = "invoice-mutating"
    await relayops.tenant.send(document, total=10)
    with pytest.raises(Refused) as refused:
        await relayops.tenant.send(document, total=11)
    assert refused.value.code == "E_IDEMPOTENCY_CONFLICT"
    (run,) = await relayops.tenant.ended(document)
    assert run["result"]["total"] == 10


async def test_the_same_key_with_another_payload_is_refused_again_from_kafka(relayops: RelayOps) -> None:
    document = "invoice-from-kafka"
    key = operation_key("relayops", document, 1)
    produce(relayops, "evt-1", key, {"document_id": document, "total": 10})
    produce(relayops, "evt-2", key, {"document_id": document, "total": 10})  # the same again: silent
    produce(relayops, "evt-3", key, {"document_id": document, "total": 11})

    async def is_buried() -> bool:
        return len(await relayops.rows(LETTERS, f"%{document}%")) > 0

    await until(is_buried, "the conflict is a dead letter", PATIENCE)
    ((code, reason, summary, raw),) = await relayops.rows(LETTERS, f"%{document}%")
    assert (code, reason) == ("E_IDEMPOTENCY_CONFLICT", "permanent_error")
    assert summary == "the key was first used by evt-1 with another body"
    assert json.loads(bytes(raw))["id"] == "evt-3"
    (run,) = await relayops.tenant.ended(document)
    assert (run["event_id"], run["result"]["total"]) == ("evt-1", 10)
    assert relayops.extractions(document) == 1


async def test_a_key_of_the_door_is_refused_from_kafka_too(relayops: RelayOps) -> None:
    document = "invoice-both-ways"
    key = operation_key("relayops", document, 1)
    await relayops.tenant.send(document, total=10)
    produce(relayops, "evt-other", key, {"document_id": document, "total": 12})

    async def is_buried() -> bool:
        return len(await relayops.rows(LETTERS, f"%{document}%")) > 0

    await until(is_buried, "the conflict is a dead letter", PATIENCE)
    (run,) = await relayops.tenant.ended(document)
    assert run["result"]["total"] == 10


async def test_another_operation_version_is_another_operation(relayops: RelayOps) -> None:
    document = "invoice-corrected"
    await relayops.tenant.send(document, version=1, total=10)
    await relayops.tenant.send(document, version=2, total=12)
    runs = await relayops.tenant.ended(document, count=2)
    assert sorted(run["result"]["total"] for run in runs) == [10, 12]


async def test_tenants_with_equal_documents_and_versions_never_meet(relayops: RelayOps, tenant_b: Tenant) -> None:
    """Also where both send the very same key: the project is part of it, whatever the senders do."""
    document, key = "doc-42", "the-very-same-key"
    found = []
    for tenant, total in ((relayops.tenant, 10), (tenant_b, 99)):
        text = json.dumps({"document_id": document, "total": total})
        answer = await asyncio.to_thread(tenant.client.run, "wf_document", text, key)
        assert answer.document["status"] == "created"
        found.append((tenant, answer.document["run_id"], total))
    for tenant, run_id, total in found:

        async def is_done(tenant: Tenant = tenant, run_id: str = run_id) -> bool:
            return bool((await tenant.show(run_id))["state"] == "succeeded")

        await until(is_done, f"the run of {tenant.name} ends", PATIENCE)
        assert (await tenant.show(run_id))["result"] == {"document_id": document, "total": total}
    (a, run_a, _), (b, run_b, _) = found
    for tenant, of_another in ((a, run_b), (b, run_a)):
        with pytest.raises(Refused) as refused:
            await tenant.show(of_another)
        assert refused.value.code == "E_RUN_NOT_FOUND"
        listed = await asyncio.to_thread(tenant.client.runs, limit=500, filters={})
        assert of_another not in {run["run_id"] for run in listed["runs"]}


async def test_tenants_send_equal_documents_as_events(relayops: RelayOps, tenant_b: Tenant) -> None:
    for tenant, total in ((relayops.tenant, 1), (tenant_b, 2)):
        assert (await tenant.send("doc-43", total=total)).status == 202
    for tenant, total in ((relayops.tenant, 1), (tenant_b, 2)):
        (run,) = await tenant.ended("doc-43")
        assert run["result"]["total"] == total
    assert relayops.extractions("doc-43") == 2
