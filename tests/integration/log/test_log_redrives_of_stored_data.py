"""Redrives of letters whose data lies in storage: read again for the new run, waited for, or told to be missing."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from processors.adapters.objects.storage import open_storage
from processors.ingest.ingest import Ingest
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import decode_envelope, encode_envelope, envelope_text, referring
from schemas.errors import Unavailable
from schemas.stored_bodies import Reference, StoredBody, too_large_to_travel
from tests.integration.log.lab import PROJECT
from tests.integration.log.yard import AGEING, Yard


@pytest.mark.parametrize("is_there", [True, False])
async def test_data_in_storage_is_read_where_a_trigger_computes_a_key_from_it(
    yard: Yard, tmp_path: Path, is_there: bool
) -> None:
    await yard.stage.catalog.publish(PROJECT, {"ageing.yaml": AGEING}, dev=False, actor="test")
    storage = open_storage(f"file://{tmp_path}")
    body = too_large_to_travel(PROJECT, json.dumps({"lane": "b", "text": "x" * 300_000}), datetime.now(UTC))
    assert body is not None
    await storage.put(body)
    stale = referring(yard.topic.event(type="order.fresh", occurred_at="2026-01-01T00:00:00Z"), body)
    reading = Ingest(yard.stage.log, CurrentCatalog(yard.stage.catalog), yard.stage.told, None, storage)
    await reading([yard.topic.record(encode_envelope(stale))])
    (letter,) = await yard.redrives.candidates(PROJECT, "ingest", whole=True, after=None, limit=9)
    assert letter.reason == "event_too_old"
    assert await yard.lab.schedule().kept_bodies([body.reference]) == [body.reference]  # no run refers to it yet
    if not is_there:
        (tmp_path / "20260718").mkdir()  # what holds nothing at all is away
        await storage.remove([body.reference])
    await yard.redrives.start(yard.order([letter.dead_letter_id], allow_stale=True))
    await yard.wind(1)
    await yard.redriver(storage).look()
    runs = await yard.lab.rows("select partition_key, lane, input_ref from automation.live_runs")
    if is_there:
        assert [(run["partition_key"], run["input_ref"]) for run in runs] == [("b", str(body.reference))]
    else:
        assert runs == []
        (said,) = await yard.lab.column("select details from automation.audit_log where action like '%%not_redriven'")
        assert json.loads(said)["error_code"] == "E_STORED_BODY_MISSING"


class Away:
    """A storage that is out of reach."""

    async def get(self, reference: Reference) -> bytes:
        raise Unavailable("E_STORAGE_UNAVAILABLE", f"{reference} cannot be read now")


async def test_while_the_storage_is_away_its_letter_waits_and_other_orders_go_on(yard: Yard) -> None:
    await yard.take(2)
    letters = await yard.die()
    kept = decode_envelope((await yard.lab.value("select envelope from automation.dead_letters limit 1")).encode())
    body = StoredBody(Reference("20260719", PROJECT, "0f" * 32), b"{}")
    away = envelope_text(referring(kept, body))
    change = "update automation.dead_letters set envelope = %s where dead_letter_id = %s"
    await yard.lab.rows(change, away, letters[0])
    for letter in letters:
        await yard.redrives.start(yard.order([letter], rate=100))
        yard.topic.millis += 1
    await yard.wind(1)
    await yard.redriver(Away()).look()  # type: ignore[arg-type]
    assert await yard.lab.column("select redriven + refused from automation.redrives order by redrive_id") == [0, 1]
    assert len(await yard.redrives.due()) == 1
