"""Dead letters say why in a word; the text of an error may hold a document and stays out of queues and lists."""

import asyncio
import json
import secrets
import sys

import pytest
from confluent_kafka import Producer

from ops.cli.app import main
from tests.acceptance.durable_pipelines.relayops import PATIENCE, RUN_EVENTS, RelayOps, values_of
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
PERSONAL = "Maria da Silva, CPF 123.456.789-09"
DEAD_LETTERS = "a44.dead-letters.v1"
LETTERS = "select reason, error_code, summary from automation.dead_letters where run_id = %s"


def listed_by_command(relayops: RelayOps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What an operator sees of the newest runs."""
    monkeypatch.setenv("A44_URL", relayops.stack.url)
    monkeypatch.setenv("A44_TOKEN", relayops.tenant.client._token)
    monkeypatch.setattr(sys, "argv", ["a44", "automation", "runs"])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().out


async def test_a_permanent_error_goes_to_the_dead_letters_at_its_first_attempt(
    relayops: RelayOps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = "invoice-without-total"
    await relayops.tenant.send(document, schema="unknown", text=PERSONAL)
    (run,) = await relayops.tenant.ended(document)
    assert (run["state"], run["error_code"]) == ("failed", "E_DOCUMENT_SCHEMA")
    assert PERSONAL in run["error"]["message"]  # for whoever opens this run, and nobody else
    assert relayops.extractions(document) == 1
    assert await relayops.rows(LETTERS, run["run_id"]) == [
        ("permanent_error", "E_DOCUMENT_SCHEMA", "step extract failed with E_DOCUMENT_SCHEMA on attempt 1")
    ]
    (event,) = await relayops.run_events(run["run_id"])
    assert event.error_code == "E_DOCUMENT_SCHEMA"
    assert not [value for value in values_of(relayops.stack.kafka_bootstrap, RUN_EVENTS) if b"Maria" in value]
    assert "Maria" not in json.dumps(await relayops.tenant.listed(document))
    shown = listed_by_command(relayops, monkeypatch, capsys)
    assert "failed" in shown
    assert "Maria" not in shown


def record(**data: object) -> bytes:
    """An event as a producer writes it, for the triggers below."""
    envelope = {
        "id": "evt_" + secrets.token_hex(6),
        "type": "document.listed",
        "idempotency_key": secrets.token_hex(6),
        "partition_key": "p",
        "occurred_at": "2026-07-19T14:00:00Z",
        "project_id": "relayops",
        "data": data,
    }
    return json.dumps(envelope).encode()


UNMAKEABLE = {
    "no JSON at all": PERSONAL.encode(),
    "JSON that breaks off": record(name=PERSONAL)[:-2],
    "a key that stands twice": record(name=1, other=2).replace(b'"other"', b'"name"').replace(b"name", b"Maria"),
    "a field of the envelope": record().replace(b"2026-07-19T14:00:00Z", PERSONAL.encode()),
    "a filter that cannot compare": record(total=PERSONAL, order={"id": 1}),
    "a lane that cannot be computed": record(total=1, order=PERSONAL),
}
LISTED = """
name: listed
version: 1
trigger: { event: document.listed, filter: "data.total > 0" }
concurrency: { partitionKey: "{{ input.order.id }}" }
steps: [{ id: nap, uses: sleep, duration: 1s }]
"""


async def test_what_no_run_can_be_made_of_is_classified_without_its_text(relayops: RelayOps) -> None:
    await asyncio.to_thread(relayops.tenant.client.publish, {"listed.yaml": LISTED})
    producer = Producer({"bootstrap.servers": relayops.stack.kafka_bootstrap})
    for value in UNMAKEABLE.values():
        producer.produce("a44.events.v1", value=value)
    assert producer.flush(30) == 0
    found: dict[bytes, tuple[str, str, str]] = {}

    async def all_buried() -> bool:
        rows = await relayops.rows("select raw, reason, error_code, summary from automation.dead_letters")
        found.update({bytes(raw): (reason, code, said) for raw, reason, code, said in rows if raw is not None})
        return all(value in found for value in UNMAKEABLE.values())

    await until(all_buried, "all are dead letters", PATIENCE)
    told = {what: found[value] for what, value in UNMAKEABLE.items()}
    assert [what for what, (_, _, said) in told.items() if "Maria" in said or "CPF" in said] == []
    assert {what: (reason, code) for what, (reason, code, _) in told.items()} == {
        "no JSON at all": ("undecodable", "E_ENVELOPE_INVALID"),
        "JSON that breaks off": ("undecodable", "E_ENVELOPE_INVALID"),
        "a key that stands twice": ("undecodable", "E_ENVELOPE_INVALID"),
        "a field of the envelope": ("undecodable", "E_ENVELOPE_INVALID"),
        "a filter that cannot compare": ("permanent_error", "E_FILTER_ERROR"),
        "a lane that cannot be computed": ("permanent_error", "E_EXPRESSION"),
    }


async def test_three_attempts_then_the_dead_letters_never_a_fourth(relayops: RelayOps) -> None:
    document = "invoice-model-away"
    await relayops.tenant.send(document, model="away", text=PERSONAL)
    (run,) = await relayops.tenant.ended(document)
    assert run["state"] == "failed"
    attempts = [(row["attempt"], row["status"], row["final"]) for row in run["attempts"] if row["kind"] == "step"]
    assert attempts == [(1, "failed", False), (2, "failed", False), (3, "failed", True)]
    ((reason, code, summary),) = await relayops.rows(LETTERS, run["run_id"])
    assert (reason, summary) == ("max_attempts_exceeded", f"step extract failed with {code} on attempt 3")
    ((envelope,),) = await relayops.rows(
        "select envelope from automation.dead_letters where run_id = %s", run["run_id"]
    )

    async def is_told() -> bool:
        return envelope.encode() in values_of(relayops.stack.kafka_bootstrap, DEAD_LETTERS)

    await until(is_told, "the letter is told on its topic, as the table has it", PATIENCE)
    await relayops.tenant.send("invoice-after-it")  # whatever would come by itself has come by then
    await relayops.tenant.ended("invoice-after-it")
    assert relayops.extractions(document) == 3
    assert len(await relayops.tenant.listed(document)) == 1
