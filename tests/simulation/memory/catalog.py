"""A catalog in memory: publications are planned as everywhere, and kept. It holds event types alone so far."""

from collections.abc import Mapping

from processors.ports.catalog import CatalogSnapshot, EventType, PublishResult
from processors.runtime.publishing import InForce, plan
from tests.unit.gateway.catalogs import NOTHING, after, event_type
from topology.publication import read_files


class MemoryCatalog:
    """Implements what of `Catalog` publishes and tells of event types."""

    def __init__(self) -> None:
        self._version = 0
        self._in_force: dict[str, InForce] = {}
        self._event_types: dict[tuple[str, str], EventType] = {}

    async def version(self) -> int:
        return self._version

    async def snapshot(self) -> CatalogSnapshot:
        return CatalogSnapshot(self._version, {}, {}, {}, {}, {}, {}, dict(self._event_types))

    async def publish(self, project_id: str, files: Mapping[str, str], *, dev: bool, actor: str) -> PublishResult:
        before = self._in_force.get(project_id, NOTHING)
        decided = plan(read_files(files, dev=dev), before, dev=dev)
        self._in_force[project_id] = after(files, before, dev=dev)
        for made in decided.event_types:
            number = len(self._event_types) + 1
            self._event_types[project_id, made.spec.type] = event_type(number, project_id, made)
        self._version += decided.changes_anything
        return decided.result()
