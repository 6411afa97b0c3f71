"""Records of one partition as producers and the relay write them, and an ingest on the real log that takes them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.ingest.ingest import Ingest
from processors.ports.measures import Measures
from processors.ports.runs import Grant
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, encode_envelope
from schemas.framing import Headers
from schemas.ids import new_event_id
from schemas.relay_numbers import sealed
from tests.integration.log.lab import EVENTS, PROJECT, Lab

FLOW = """
name: orders
version: 1
trigger:
  event: order.paid
concurrency:
  max: 3
  partitionKey: "{{ input.lane }}"
steps:
  - id: nap
    uses: sleep
    duration: 1s
"""
FILTERED = """
name: large-orders
version: 1
trigger:
  event: order.large
  filter: data.amount > 100
steps:
  - id: nap
    uses: sleep
    duration: 1s
"""
SORTED = """
name: sorted-orders
version: 1
trigger:
  event: order.sorted
  partitionKey: "shop-{{ data.shop }}"
concurrency:
  max: 3
  partitionKey: "{{ event.partition_key }}"
steps:
  - id: nap
    uses: sleep
    duration: 1s
"""
WATCHED = """
name: watched-orders
version: 1
trigger:
  event: order.watched
  filter: data.amount > 100
  deliver: {dropOnFilterMiss: false}
steps:
  - id: nap
    uses: sleep
    duration: 1s
"""
RECENT = """
name: recent-orders
version: 1
trigger:
  event: order.recent
  deliver: {maxAge: 1h}
steps:
  - id: nap
    uses: sleep
    duration: 1s
"""


class Told:
    def __init__(self) -> None:
        self.grants: list[Grant] = []

    def granted(self, grants: Sequence[Grant]) -> None:
        self.grants += grants


SEAL_KEY = b"of these tests".ljust(32)


class Topic:
    """Makes the records of one partition as producers and the relay write them."""

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition
        self.offset = 0
        self.seq = 0
        self.millis = int(datetime.now(UTC).timestamp() * 1000)

    def record(self, value: bytes | None, *, relayed: bool = False) -> Record:
        headers: Headers = ()
        if relayed:
            self.seq += 1
            headers = sealed(SEAL_KEY, EVENTS, self.partition, self.seq, value or b"")
        made = Record(EVENTS, self.partition, self.offset, b"k", value, headers, self.millis)
        self.offset += 1
        return made

    def event(self, **fields: object) -> Envelope:
        told = {
            "id": new_event_id(self.millis + self.offset),
            "type": "order.paid",
            "idempotency_key": f"k-{self.partition}-{self.offset}",
            "partition_key": "p",
            "occurred_at": "2026-07-19T14:00:00Z",
            "data": '{"lane":"a"}',
            "project_id": PROJECT,
        }
        return Envelope(**{**told, **fields})  # type: ignore[arg-type]

    def direct(self, **fields: object) -> Record:
        return self.record(encode_envelope(self.event(**fields)))

    def relayed(self, **fields: object) -> Record:
        return self.record(encode_envelope(self.event(**fields)), relayed=True)


class Stage:
    def __init__(self, lab: Lab, log: PostgresIngestLog, catalog: PostgresCatalog) -> None:
        self.lab, self.log, self.catalog, self.told = lab, log, catalog, Told()
        self.measures = Measures()
        self.ingest = Ingest(log, CurrentCatalog(catalog), self.told, self.measures)

    async def restarted(self) -> "Stage":
        """Another process in the place of this one."""
        other = Stage(self.lab, await self.lab.ingest_log(), self.catalog)
        await other.log.positions(EVENTS, "topic-1", [0, 1])
        return other
