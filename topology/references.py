"""References from one declared thing to another, and the check that all of them lead somewhere."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from schemas.errors import Place, Refused
from topology.names import hint
from topology.queues import DEFAULT_QUEUE

Target = Literal["workflow", "connector", "queue"]


@dataclass(frozen=True, slots=True)
class Reference:
    """`part` is an operation of a connector or a version of a workflow, where one is named."""

    target: Target
    id: str
    place: Place
    part: str | int | None = None


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What is published already: workflows with their versions, connectors with their operations, queues.

    A plain set of ids, or an empty collection of an id, leaves versions and operations unchecked.
    """

    workflows: Mapping[str, Collection[int]] | Collection[str] = frozenset()
    connectors: Mapping[str, Collection[str]] | Collection[str] = frozenset()
    queues: Collection[str] = field(default_factory=frozenset)


def unknown_references(references: Collection[Reference], known: KnownNames) -> list[Refused]:
    """One refusal for each reference that leads nowhere."""
    found = (_check(reference, known) for reference in references)
    return [error for error in found if error is not None]


def _check(reference: Reference, known: KnownNames) -> Refused | None:
    match reference.target:
        case "workflow":
            return _check_workflow(reference, known)
        case "connector":
            return _check_connector(reference, known)
        case "queue":
            if reference.id == DEFAULT_QUEUE or reference.id in known.queues:
                return None
            near = hint(reference.id, known.queues)
            message = f"the queue `{reference.id}` is declared nowhere{near}"
            return Refused("E_SPEC_INVALID", message, reference.place)


def _check_workflow(reference: Reference, known: KnownNames) -> Refused | None:
    workflows = known.workflows
    if reference.id not in workflows:
        message = f"the workflow `{reference.id}` is not published{hint(reference.id, workflows)}"
        return Refused("E_WORKFLOW_NOT_FOUND", message, reference.place)
    if isinstance(reference.part, int) and isinstance(workflows, Mapping):
        versions = workflows[reference.id]
        if versions and reference.part not in versions:
            newest = max(versions)
            message = f"version {reference.part} of `{reference.id}` is not published; the newest is {newest}"
            return Refused("E_VERSION_UNKNOWN", message, reference.place)
    return None


def _check_connector(reference: Reference, known: KnownNames) -> Refused | None:
    connectors = known.connectors
    if reference.id not in connectors:
        message = f"the connector `{reference.id}` is not published{hint(reference.id, connectors)}"
        return Refused("E_CONNECTOR_UNKNOWN", message, reference.place)
    if isinstance(reference.part, str) and isinstance(connectors, Mapping):
        operations = connectors[reference.id]
        if operations and reference.part not in operations:
            near = hint(reference.part, operations)
            message = f"the connector `{reference.id}` has no operation `{reference.part}`{near}"
            return Refused("E_CONNECTOR_UNKNOWN", message, reference.place)
    return None
