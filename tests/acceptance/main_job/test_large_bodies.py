"""The whole way with storage and a schema registry: whatever form an event came in, the workflow gets it whole."""

import hashlib
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Producer

from ops.client import Client
from ops.local import LocalOptions, LocalStack
from tests.integration.kafka.test_schema_registry import registry_at_work
from tests.support.waiting import until
from tests.unit.schemas.test_confluent import framed, schema

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
INLINE = 262_144
FLOW = '''
from anthares44.automation import workflow, step
import hashlib

@workflow("measure", version=1)
async def body(ctx, input):
    """Answers what it was given, in a few words."""
    text = input["text"]
    return await step.run("hash", timeout="20s", fn=lambda: [len(text), hashlib.sha256(text.encode()).hexdigest()])
'''
TRIGGERS = "triggers:\n  - { id: trg_measure, type: event, event: text.came, workflow: wf_measure }\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage") / "bodies"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(folder: Path) -> AsyncIterator[LocalStack]:
    async with registry_at_work() as registry:
        environment = {"A44_STORAGE_URL": f"file://{folder}", "A44_SCHEMA_REGISTRY_URL": registry.url}
        async with running_stack(environment) as running:
            yield running


@asynccontextmanager
async def running_stack(environment: dict[str, str]) -> AsyncIterator[LocalStack]:
    async with LocalStack(LocalOptions(project="large", environment=environment)) as running:
        with closing(Client(running.url, running.token)) as client:
            client.publish({"flow.py": FLOW, "triggers.yaml": TRIGGERS})
        yield running


def text_of(size: int) -> str:
    """Text that makes data of this size."""
    return "x" * (size - len('{"text":""}'))


def hashed(text: str) -> list[object]:
    """What the workflow answers."""
    return [len(text), hashlib.sha256(text.encode()).hexdigest()]


async def run_of(stack: LocalStack, key: str) -> Any:
    """The run of this key, once it has ended well."""
    with closing(Client(stack.url, stack.token)) as client:

        def ended() -> list[str]:
            runs = client.runs(limit=100, filters={})["runs"]
            return [one["run_id"] for one in runs if (one["idempotency_key"], one["state"]) == (key, "succeeded")]

        await until(lambda: bool(ended()), f"the run of {key} has ended", 60.0)
        return client.show(ended()[0]).document


def send(stack: LocalStack, key: str, text: str) -> int:
    """An event over REST; answers the status."""
    body = json.dumps({"type": "text.came", "idempotency_key": key, "data": {"text": text}}, separators=(",", ":"))
    headers = {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{stack.url}/v1/automation/events", body.encode(), headers)  # noqa: S310  our own
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  as above
        return int(answer.status)


def produce(stack: LocalStack, value: bytes, headers: dict[str, str], key: str = "p") -> None:
    producer = Producer({"bootstrap.servers": stack.kafka_bootstrap})
    producer.produce("a44.events.v1", key=key, value=value, headers=headers)
    assert producer.flush(20) == 0


def stored(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


async def test_a20_what_is_too_large_to_travel_arrives_whole_in_the_workflow(stack: LocalStack, folder: Path) -> None:
    small, large = text_of(INLINE), text_of(999_000)
    assert send(stack, "small", small) == 202
    assert stored(folder) == []
    assert send(stack, "large", large) == 202
    assert (await run_of(stack, "small"))["result"] == hashed(small)
    run = await run_of(stack, "large")
    assert run["result"] == hashed(large)
    assert stored(folder) == [run["input"]["data_ref"]]


async def test_a_cloudevent_on_the_topic_is_run_in_either_mode(stack: LocalStack) -> None:
    told = {"specversion": "1.0", "type": "text.came", "source": "/texts"}
    binary = {f"ce_{name}": text for name, text in {**told, "id": "1"}.items()}
    produce(stack, b'{"text":"one"}', {**binary, "content-type": "application/json", "a44-project": "large"})
    whole = json.dumps({**told, "id": "2", "project": "large", "data": {"text": "two"}}).encode()
    produce(stack, whole, {"content-type": "application/cloudevents+json; charset=utf-8"})
    assert (await run_of(stack, "/texts 1"))["result"] == hashed("one")
    assert (await run_of(stack, "/texts 2"))["result"] == hashed("two")


async def test_a_producer_may_store_data_itself_and_refer_to_it(stack: LocalStack, folder: Path) -> None:
    content = json.dumps({"text": "of my own"}).encode()
    reference = f"20260719/large/{hashlib.sha256(content).hexdigest()}"
    (folder / reference).parent.mkdir(parents=True)
    (folder / reference).write_bytes(content)
    envelope = {
        "id": "mine", "type": "text.came", "idempotency_key": "mine", "partition_key": "p", "project_id": "large",
        "occurred_at": "2026-07-19T14:02:11Z", "data": None, "data_ref": reference,
    }  # fmt: skip
    produce(stack, json.dumps(envelope).encode(), {})
    assert (await run_of(stack, "mine"))["result"] == hashed("of my own")


async def test_a_record_framed_for_a_registry_is_read_by_its_writers_schema(stack: LocalStack) -> None:
    told = {"type": "text.came", "idempotency_key": "framed", "project_id": "large"}
    produce(stack, framed(schema(), **told, data='{"text":"in a frame"}'), {})
    assert (await run_of(stack, "framed"))["result"] == hashed("in a frame")
