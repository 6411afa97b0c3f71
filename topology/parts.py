"""What one file contributes to a publication, each thing with the place that declares it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.errors import Place, Refused
from topology.code_workflows.bundles import Bundle
from topology.connectors import ConnectorSpec
from topology.event_types import EventTypeSpec
from topology.queues import QueueSpec
from topology.references import Reference
from topology.triggers import TriggerSpec
from topology.workflows import WorkflowSpec
from topology.yaml_source import Document, Path

Declared = WorkflowSpec | TriggerSpec | ConnectorSpec | QueueSpec | EventTypeSpec


class Source(NamedTuple):
    """Where a thing is declared, for what is found out about it later."""

    document: Document
    path: Path

    def place(self, path: Path) -> Place:
        """Of a part of it."""
        return self.document.place((*self.path, *path))


@dataclass
class Parts:
    """Grows while a file is read; `errors` are gathered so that a user sees all of them at once. `sources` are those of
    event types.
    """

    declared: list[tuple[Declared, Place]] = field(default_factory=list)
    bundles: list[Bundle] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: list[Refused] = field(default_factory=list)

    def merge(self, other: "Parts") -> None:
        self.declared.extend(other.declared)
        self.bundles.extend(other.bundles)
        self.references.extend(other.references)
        self.sources.update(other.sources)
        self.warnings.extend(other.warnings)
        self.errors.extend(other.errors)


def id_of(spec: Declared) -> str:
    """Unlike every other's: event types have names of their own kind."""
    if isinstance(spec, EventTypeSpec):
        return f"events: {spec.type}"
    return spec.workflow_id if isinstance(spec, WorkflowSpec) else spec.id
