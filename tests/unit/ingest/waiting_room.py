"""Ingest on the log in memory, with retry topics, a storage and a registry that are away until they come back."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from processors.ingest.ingest import Ingest
from processors.ingest.postponing import MOST_TRIES, Ladder, Source
from processors.ingest.retries import Retries
from processors.ports.ingest import Committed, Harvest
from processors.ports.measures import Measures
from processors.ports.relay import OutboxRow
from processors.ports.streams import Later, Record
from processors.relay.numbering import Numbering
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.errors import Unavailable
from schemas.relay_numbers import sealed
from schemas.stored_bodies import Reference, StoredBody, too_large_to_travel
from tests.conformance_of_ports.logs import MemoryLog
from tests.simulation.memory.ingest_log import MemoryIngestLog
from tests.simulation.memory.tables import SEAL_KEY, Queue, Tables
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

TOPIC, DEAD = "events", "dead"
DELAYS = {"retry.10s": 10.0, "retry.1m": 60.0, "retry.10m": 600.0}
FRAMED = b"\0\0\0\0\x07some record"
SETTLE = """\
name: settle
version: 1
trigger: { event: order.paid }
steps:
  - { id: pay, uses: sql/execute, timeout: 5s, query: "select 1" }
"""
IN_ORDER = """\
name: ship
version: 1
trigger: { event: order.shipped }
concurrency: { max: 3, partitionKey: "{{ input.n }}" }
steps:
  - { id: pay, uses: sql/execute, timeout: 5s, query: "select 1" }
"""


class Clocked(MemoryIngestLog):
    """The log of an ingest whose database has a clock of its own; it may take a commit and lose the answer."""

    ahead = 0.0
    loses_answers = False

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)

    async def commit(self, harvest: Harvest) -> Committed:
        done = await super().commit(harvest)
        if self.loses_answers:
            raise Unavailable("E_UNAVAILABLE", "the answer was lost")
        return done


class Remote:
    """Storage and schema registry; what is not here yet is away."""

    def __init__(self) -> None:
        self.is_away = True
        self.bodies: dict[str, bytes] = {}

    def come_back(self) -> None:
        self.is_away = False
        self.bodies[str(body().reference)] = body().content

    async def get(self, reference: Reference) -> bytes:
        self._answer("E_STORAGE_UNAVAILABLE")
        return self.bodies[str(reference)]

    async def writer(self, _number: int) -> object:
        self._answer("E_SCHEMA_REGISTRY_UNAVAILABLE")
        return self

    def decode(self, _value: bytes) -> Envelope:
        return event("framed")

    def _answer(self, code: str) -> None:
        if self.is_away:
            raise Unavailable(code, "away")


@dataclass
class Published:
    files: Mapping[str, str]

    async def version(self) -> int:
        return 1

    async def snapshot(self) -> object:
        return snapshot_of(dict(self.files))


class Silent:
    def granted(self, grants: object) -> None: ...


class Stage:
    """Ingest on the log in memory, and the relay's own way from its outbox to the records of a topic."""

    def __init__(self, *files: str, delays: Mapping[str, float] | None = None) -> None:
        self.memory = MemoryLog()
        self.tables.queues[PROJECT, "q_default"] = Queue(100, ordered=False, max_attempts=5)
        self.tables.queues[PROJECT, "q_ship"] = Queue(3, ordered=True, max_attempts=5)
        self.log = Clocked(self.memory.database, DEAD, 86_400.0)
        self.remote, self.measures = Remote(), Measures()
        catalog = CurrentCatalog(Published({f"{n}.yaml": text for n, text in enumerate(files)}))  # type: ignore[arg-type]
        self.ingest = Ingest(
            self.log, catalog, Silent(), self.measures, self.remote, self.remote, DELAYS if delays is None else delays  # type: ignore[arg-type]
        )  # fmt: skip
        self.retries = Retries(self.ingest)
        self.numbering = Numbering(0)
        self.numbering.begin({}, SEAL_KEY)
        self._sent: dict[str, int] = {}

    @property
    def tables(self) -> Tables:
        return self.memory.database.tables

    async def take(self, *records: Record) -> Mapping[int, Later]:
        await self._begin(TOPIC)
        return await self.ingest(records)

    async def _begin(self, topic: str) -> None:
        await self.log.open()
        await self.log.positions(topic, "topic-1", [0, 1])

    def letters(self, topic: str) -> list[Record]:
        """What the relay makes of the rows for a retry topic that it did not see yet."""
        rows = [row for row in self.tables.outbox if row.topic == topic]
        seen = self._sent.get(topic, 0)
        self._sent[topic] = len(rows)
        return [self._published(row, at) for at, row in enumerate(rows) if at >= seen]

    def _published(self, row: OutboxRow, offset: int) -> Record:
        out = self.numbering.outgoing(row, 1)
        return Record(row.topic, 0, offset, out.key, out.value, out.headers, 1_784_500_000_000)

    async def hand_back(self, *letters: Record) -> Mapping[int, Later]:
        await self._begin(letters[0].topic)
        return await self.retries(letters)

    async def fall(self, topic: str) -> Record:
        """The one letter on a topic, once it is due and still cannot be read."""
        (letter,) = self.letters(topic)
        self.log.ahead += DELAYS[topic]
        assert await self.hand_back(letter) == {}
        return letter


def spoiled(letter: Record, name: str, value: bytes) -> Record:
    """As if the relay had published the letter with another value in one header."""
    headers = dict(letter.headers)
    number, others = int(headers["a44-seq"] or b""), [*letter.headers[2:]]
    changed = tuple((one, value if one == name else told) for one, told in others)
    own = sealed(SEAL_KEY, letter.topic, letter.partition, number, letter.value or b"", changed)
    return msgspec.structs.replace(letter, headers=own + changed)


def event(name: str, **changes: object) -> Envelope:
    plain = Envelope(
        id=name, type="order.paid", idempotency_key=f"key-{name}", partition_key="p",
        occurred_at="2026-07-19T14:02:11Z", data='{"n":1}', project_id=PROJECT,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def body() -> StoredBody:
    made = too_large_to_travel(PROJECT, f'{{"n":"{"x" * 300_000}"}}', datetime.now(UTC))
    assert made is not None
    return made


def stored(name: str, **changes: object) -> bytes:
    return encode_envelope(referring(event(name, **changes), body()))


def small(name: str, **changes: object) -> bytes:
    return encode_envelope(event(name, **changes))


def record(offset: int, value: bytes, headers: tuple[tuple[str, bytes | None], ...] = (), partition: int = 0) -> Record:
    return Record(TOPIC, partition, offset, b"\xffkey", value, headers, 1_784_500_000_000)


async def spend(stage: Stage, value: bytes, code: str) -> None:
    """The last try of a record that was put off for a day."""
    await stage._begin("retry.10m")
    spent = Ladder(DELAYS).letter(Source(record(5, value), False, MOST_TRIES - 1), code, stage.log.now())
    assert spent is not None
    row = OutboxRow(1, 1, spent.topic, spent.partition_key, spent.headers, spent.value)
    stage.log.ahead += 600.0
    assert await stage.hand_back(stage._published(row, 0)) == {}
