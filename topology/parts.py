"""What one file contributes to a publication, each thing with the place that declares it."""

from dataclasses import dataclass, field

from schemas.errors import Place, Refused
from topology.code_workflows.bundles import Bundle
from topology.connectors import ConnectorSpec
from topology.event_types import EventTypeSpec
from topology.queues import QueueSpec
from topology.references import Reference
from topology.triggers import TriggerSpec
from topology.workflows import WorkflowSpec

Declared = WorkflowSpec | TriggerSpec | ConnectorSpec | QueueSpec | EventTypeSpec


@dataclass
class Parts:
    """Grows while a file is read; `errors` are gathered so that a user sees all of them at once."""

    declared: list[tuple[Declared, Place]] = field(default_factory=list)
    bundles: list[Bundle] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[Refused] = field(default_factory=list)

    def merge(self, other: "Parts") -> None:
        self.declared.extend(other.declared)
        self.bundles.extend(other.bundles)
        self.references.extend(other.references)
        self.warnings.extend(other.warnings)
        self.errors.extend(other.errors)


def id_of(spec: Declared) -> str:
    """Unlike every other's: event types have names of their own kind."""
    if isinstance(spec, EventTypeSpec):
        return f"events: {spec.type}"
    return spec.workflow_id if isinstance(spec, WorkflowSpec) else spec.id
