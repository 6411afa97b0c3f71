"""Dead letters say why in a word; the text of an error may hold a document and stays out of queues and lists."""

import json
import sys

import pytest

from ops.cli.app import main
from tests.acceptance.durable_pipelines.relayops import RUN_EVENTS, RelayOps, values_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
PERSONAL = "Maria da Silva, CPF 123.456.789-09"
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


async def test_three_attempts_then_the_dead_letters_never_a_fourth(relayops: RelayOps) -> None:
    document = "invoice-model-away"
    await relayops.tenant.send(document, model="away", text=PERSONAL)
    (run,) = await relayops.tenant.ended(document)
    assert run["state"] == "failed"
    attempts = [(row["attempt"], row["status"], row["final"]) for row in run["attempts"] if row["kind"] == "step"]
    assert attempts == [(1, "failed", False), (2, "failed", False), (3, "failed", True)]
    ((reason, code, summary),) = await relayops.rows(LETTERS, run["run_id"])
    assert (reason, summary) == ("max_attempts_exceeded", f"step extract failed with {code} on attempt 3")
    await relayops.tenant.send("invoice-after-it")  # whatever would come by itself has come by then
    await relayops.tenant.ended("invoice-after-it")
    assert relayops.extractions(document) == 3
    assert len(await relayops.tenant.listed(document)) == 1
