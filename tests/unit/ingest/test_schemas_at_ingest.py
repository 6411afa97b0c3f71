"""Events from Kafka and the schemas of their types: what does not fit is a dead letter, and takes no key."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from processors.adapters.objects.storage import open_storage
from processors.ingest.ingest import Ingest
from processors.ports.measures import Measures
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.ids import new_event_id
from schemas.relay_numbers import sealed
from schemas.stored_bodies import too_large_to_travel
from tests.conformance_of_ports.logs import MemoryLog
from tests.simulation.memory.tables import SEAL_KEY, Queue, Tables
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

TOPIC = "events"
FLOW = "name: settle\nversion: 1\ntrigger: {event: order.paid}\nsteps: [{id: nap, uses: sleep, duration: 1s}]\n"
EVENTS = """
events:
  - type: order.paid
    schema:
      type: object
      required: [order_id]
      properties: {order_id: {type: string}}
      additionalProperties: {type: integer}
"""


class Published:
    async def version(self) -> int:
        return 1

    async def snapshot(self) -> object:
        return snapshot_of({"settle.yaml": FLOW, "events.yaml": EVENTS})


class Silent:
    def granted(self, grants: object) -> None: ...


class Stage:
    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog()
        self.tables.queues[PROJECT, "q_default"] = Queue(100, ordered=False, max_attempts=5)
        self.storage = open_storage(f"file://{folder}")
        self.measures = Measures()

    @property
    def tables(self) -> Tables:
        return self.log.database.tables

    async def ingest(self, *events: Envelope, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
        log = await self.log.ingest_log()
        await log.positions(TOPIC, "topic-1", [0])
        ingest = Ingest(log, CurrentCatalog(Published()), Silent(), self.measures, self.storage)  # type: ignore[arg-type]
        values = [encode_envelope(one) for one in events]
        await ingest([Record(TOPIC, 0, at, b"p", value, headers, 1_784_500_000_000) for at, value in enumerate(values)])

    @property
    def inputs(self) -> list[str]:
        return [live.run.input for live in self.tables.live.values()]


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "bodies")


def event(data: str, event_id: str = "1") -> Envelope:
    return Envelope(
        id=event_id, type="order.paid", idempotency_key="k", partition_key="p", occurred_at="2026-07-19T14:02:11Z",
        data=data, project_id=PROJECT,
    )  # fmt: skip


async def test_what_does_not_fit_is_a_dead_letter_with_the_path_and_nothing_of_the_data(stage: Stage) -> None:
    await stage.ingest(event('{"order_id":"o-1","4111-1111":"hunter2"}'))
    (letter,) = stage.tables.dead_letters.values()
    assert (letter.error_code, letter.reason, letter.project_id) == ("E_EVENT_SCHEMA", "permanent_error", PROJECT)
    assert "at /* it is a text of 7 characters; expected integer" in letter.summary
    assert "4111" not in letter.summary
    assert letter.raw is not None
    assert b"hunter2" in letter.raw
    assert stage.inputs == []


async def test_its_key_stays_free_for_the_event_that_is_mended(stage: Stage) -> None:
    await stage.ingest(event('{"order":1}'), event('{"order_id":"o-1"}', "2"))
    assert stage.inputs == ['{"order_id":"o-1"}']
    assert [one.error_code for one in stage.tables.dead_letters.values()] == ["E_EVENT_SCHEMA"]


async def test_a_second_reading_adds_no_letter(stage: Stage) -> None:
    for _ in range(2):
        await stage.ingest(event("[]"))
    assert len(stage.tables.dead_letters) == 1


async def test_what_a_door_accepted_is_not_asked_again(stage: Stage) -> None:
    """It was taken by the schema that was in force then, and was promised."""
    accepted = new_event_id(int((await stage.log.ingest_log()).now().timestamp() * 1000))
    told = event("[]", accepted)
    await stage.ingest(told, headers=sealed(SEAL_KEY, TOPIC, 0, 1, encode_envelope(told)))
    assert stage.inputs == ["[]"]
    assert stage.tables.dead_letters == {}


async def test_data_in_storage_is_asked_as_well(stage: Stage) -> None:
    for letter, known in (("order", []), ("order_id", ["order_id"])):
        body = too_large_to_travel(PROJECT, f'{{"{letter}":"{"x" * 300_000}"}}', datetime.now(UTC))
        assert body is not None
        await stage.storage.put(body)
        await stage.ingest(referring(event("null", letter), body))
        assert len(stage.inputs) == len(known)
    assert [one.error_code for one in stage.tables.dead_letters.values()] == ["E_EVENT_SCHEMA"]
