"""Event ids are their producers' to choose: two projects that choose the same one do not take each other's runs."""

from collections.abc import Mapping

import pytest

from processors.ingest.ingest import Ingest
from processors.ports.catalog import CatalogSnapshot
from processors.ports.ingest import IngestLog
from processors.ports.streams import Record
from schemas.envelope import Envelope, encode_envelope
from tests.conformance_of_ports.logs import MemoryLog
from tests.simulation.memory.tables import Queue
from tests.unit.gateway.catalogs import snapshot_of

TOPIC = "events"
PROJECTS = ("acme", "shop")
FLOW = """
name: welcome
version: 1
trigger:
  event: user.signed_up
steps:
  - {id: nap, uses: sleep, duration: 1s}
"""


def both() -> CatalogSnapshot:
    """The same workflow in two projects."""
    found = [snapshot_of({"welcome.yaml": FLOW}, project) for project in PROJECTS]

    def joined(name: str) -> Mapping[object, object]:
        return {key: value for one in found for key, value in getattr(one, name).items()}

    names = ("triggers", "by_event", "queues", "latest", "by_version", "by_label")
    return CatalogSnapshot(1, *(joined(name) for name in names))  # type: ignore[arg-type]


class Catalog:
    async def get(self) -> CatalogSnapshot:
        return both()


class Hints:
    def granted(self, grants: object) -> None:
        """Nobody listens."""


def signup(project: str, offset: int, event: str = "signup-77", data: str = '{"plan":"free"}') -> Record:
    envelope = Envelope(
        id=event,
        type="user.signed_up",
        idempotency_key="signup:77",
        partition_key="p",
        occurred_at="2026-07-19T14:00:00Z",
        data=data,
        project_id=project,
    )
    return Record(TOPIC, 0, offset, b"k", encode_envelope(envelope), (), 1_784_500_000_000)


async def begun(log: MemoryLog) -> tuple[Ingest, IngestLog]:
    for (project, queue), one in both().queues.items():
        log.database.tables.queues[project, queue] = Queue(one.max_concurrency, one.ordered, one.max_attempts)
    kept = await log.ingest_log()
    await kept.positions(TOPIC, "topic-1", [0])
    return Ingest(kept, Catalog(), Hints()), kept  # type: ignore[arg-type]


@pytest.mark.parametrize("polls", [1, 2], ids=["in one poll", "one after the other"])
async def test_b09_each_project_gets_its_runs_and_its_keys(polls: int) -> None:
    log = MemoryLog()
    ingest, _ = await begun(log)
    records = [signup("acme", 0), signup("shop", 1, data='{"plan":"paid"}')]
    for part in [records] if polls == 1 else [[one] for one in records]:
        await ingest(part)
    await ingest(records)  # a second reading
    tables = log.database.tables
    assert {(live.run.project_id, live.run.event_id, live.run.input) for live in tables.live.values()} == {
        ("acme", "signup-77", '{"plan":"free"}'),
        ("shop", "signup-77", '{"plan":"paid"}'),
    }
    runs = {(live.run.project_id, "signup:77"): live.run.run_id for live in tables.live.values()}
    assert {place: key.run_id for place, key in tables.keys.items()} == runs
    assert tables.dead_letters == {}


async def test_b09_a_conflict_in_one_project_is_none_in_the_other() -> None:
    log = MemoryLog()
    ingest, _ = await begun(log)
    await ingest([signup("acme", 0), signup("shop", 1)])
    await ingest([signup("shop", 2, event="signup-again", data='{"plan":"other"}')])
    (letter,) = log.database.tables.dead_letters.values()
    assert (letter.project_id, letter.error_code) == ("shop", "E_IDEMPOTENCY_CONFLICT")
