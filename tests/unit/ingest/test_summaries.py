"""What ingest says of a record that it cannot take holds no secret of the sender's."""

import json

import pytest

from processors.ingest.ingest import Ingest
from processors.ports.ingest import Committed, DeadRecord, Harvest
from processors.ports.streams import Record
from tests.unit.ingest.test_parts_of_polls import TOPIC, Catalog, Hints, Log

NAMES = ["csrf-token", "webhook-secret", "clientSecret", "X-Api-Key"]


class KeepsTheDead(Log):
    def __init__(self) -> None:
        super().__init__()
        self.dead: list[DeadRecord] = []

    async def commit(self, harvest: Harvest) -> Committed:
        self.dead += harvest.dead
        return Committed()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["project_id", "trigger_id"])
async def test_h05_a_summary_hides_the_value_behind_any_style_of_a_secrets_name(name: str, field: str) -> None:
    envelope = {
        "id": "e-1", "type": "order.paid", "idempotency_key": "k", "partition_key": "p",
        "occurred_at": "2026-07-19T14:00:00Z", "project_id": "pj_shop", "data": {},
        field: f"https://maria:hunter2@p.example/?a=1&{name}=hunter2",
    }  # fmt: skip
    log = KeepsTheDead()
    await Ingest(log, Catalog(), Hints())([Record(TOPIC, 0, 0, b"k", json.dumps(envelope).encode(), (), 1)])  # type: ignore[arg-type]
    (dead,) = log.dead
    assert "hunter2" not in dead.summary
    assert "[redacted]" in dead.summary
    assert dead.raw is not None
    assert b"hunter2" in dead.raw
