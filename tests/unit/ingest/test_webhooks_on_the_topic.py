"""A webhook's runs are made of what its door has verified: nobody else may name it in a record, whatever they write."""

import pytest

from processors.ingest.ingest import Ingest
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, encode_envelope
from schemas.framing import Headers
from schemas.ids import new_event_id
from schemas.relay_numbers import SEAL_HEADER, SEQ_HEADER, number_of, sealed
from tests.conformance_of_ports.logs import MemoryLog
from tests.simulation.memory.tables import SEAL_KEY, Queue
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

TOPIC = "events"
FILES = {
    "settle.yaml": """\
name: settle
version: 1
trigger:
  webhook: { id: trg_settle, filter: "data.amount > 1000" }
steps:
  - { id: pay, uses: sql/execute, timeout: 5s, query: "select 1" }
"""
}


class Published:
    async def version(self) -> int:
        return 1

    async def snapshot(self) -> object:
        return snapshot_of(FILES)


class Silent:
    def granted(self, grants: object) -> None: ...


async def taken(headers: Headers) -> MemoryLog:
    log = MemoryLog()
    log.database.tables.queues[PROJECT, "q_default"] = Queue(100, ordered=False, max_attempts=5)
    kept = await log.ingest_log()
    await kept.positions(TOPIC, "topic-1", [0])
    value = encode_envelope(hook(new_event_id(int(kept.now().timestamp() * 1000))))
    headers = tuple((name, seal(value) if text == b"right" else text) for name, text in headers)
    ingest = Ingest(kept, CurrentCatalog(Published()), Silent())  # type: ignore[arg-type]
    await ingest([Record(TOPIC, 0, 0, b"k", value, headers, 1_784_500_000_000)])
    return log


def hook(event_id: str) -> Envelope:
    return Envelope(
        id=event_id, type="webhook.settle", idempotency_key="k", partition_key="k", occurred_at="2026-07-19T14:02:11Z",
        data='{"amount":5000}', project_id=PROJECT, trigger_id="trg_settle",
    )  # fmt: skip


def seal(value: bytes) -> bytes:
    return sealed(SEAL_KEY, TOPIC, 0, 1, value)[1][1]


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((SEQ_HEADER, b"1"),),
        ((SEQ_HEADER, b"1"), ("a44-shard", b"0")),
        ((SEQ_HEADER, b"1"), (SEAL_HEADER, b"0" * 32)),
        ((SEQ_HEADER, b"2"), (SEAL_HEADER, b"right")),
        ((SEAL_HEADER, b"right"),),
    ],
)
async def test_a_record_that_names_a_webhook_is_a_dead_letter_and_takes_no_key(headers: Headers) -> None:
    tables = (await taken(headers)).database.tables
    (letter,) = tables.dead_letters.values()
    assert (letter.error_code, letter.reason, letter.project_id) == ("E_SIGNATURE", "permanent_error", PROJECT)
    assert (tables.live, tables.keys, tables.inbox) == ({}, {}, {})


async def test_what_its_door_took_makes_the_run_that_was_promised() -> None:
    tables = (await taken(((SEQ_HEADER, b"1"), (SEAL_HEADER, b"right")))).database.tables
    assert [live.run.trigger_id for live in tables.live.values()] == ["trg_settle"]
    assert tables.dead_letters == {}


@pytest.mark.parametrize("value", [None, b"", b"\x00" * 10])
def test_a_seal_holds_number_place_and_value_together(value: bytes | None) -> None:
    headers = sealed(SEAL_KEY, TOPIC, 3, 44, value or b"")
    assert number_of(SEAL_KEY, TOPIC, 3, headers, value) == (None if value is None else 44)
    assert number_of(SEAL_KEY, TOPIC, 4, headers, value) is None
    assert number_of(SEAL_KEY, "other", 3, headers, value) is None
    assert number_of(SEAL_KEY, TOPIC, 3, headers, b"other") is None
    assert number_of(b"guessed", TOPIC, 3, headers, value) is None
    assert number_of(SEAL_KEY, TOPIC, 3, ((SEQ_HEADER, b"45"), headers[1]), value) is None
