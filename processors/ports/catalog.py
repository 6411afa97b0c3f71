"""The catalog: what is published, as every process that needs it sees it in memory.

A publication is one transaction: all of it is in force or none. A snapshot never changes; whoever holds
one compares `version` and loads the next. Definitions are immutable, so what was compiled is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NamedTuple, Protocol

from processors.ports.misses import FilterMiss, KeptMiss
from schemas.event_schemas.checking import EventSchema
from topology.connectors import ConnectorSpec
from topology.event_types import EventTypeSpec
from topology.triggers import TriggerSpec
from topology.workflows import WorkflowSpec


class Definition:
    """One published version of a workflow. `label` is what users call it: `3`, or `3-dev.2`.

    The spec is read when first asked for: most old versions never are.
    """

    def __init__(
        self,
        *,
        definition_id: int,
        project_id: str,
        workflow_id: str,
        version: int,
        revision: int,
        label: str,
        kind: str,
        spec: str,
        bundle_digest: str | None,
        published_at: datetime,
    ) -> None:
        self.definition_id = definition_id
        self.project_id = project_id
        self.workflow_id = workflow_id
        self.version = version
        self.revision = revision
        self.label = label
        self.kind = kind
        self.spec_text = spec
        self.bundle_digest = bundle_digest
        self.published_at = published_at

    @cached_property
    def spec(self) -> WorkflowSpec:
        return WorkflowSpec.from_json(self.spec_text)


class WebhookSecret(NamedTuple):
    """One of a webhook trigger's secrets, by its number. `ends_at` None: the newest, which new senders use."""

    number: int
    ends_at: datetime | None = None

    def lives(self, now: datetime) -> bool:
        return self.ends_at is None or now < self.ends_at


class Trigger:
    """One trigger in force. `pinned_version` None means: the latest version. `secrets` has those that lived when this
    was read, the newest first.
    """

    def __init__(
        self,
        *,
        project_id: str,
        trigger_id: str,
        type_: str,
        event_type: str | None,
        workflow_id: str,
        pinned_version: int | None,
        spec: str,
        secrets: Sequence[WebhookSecret] = (),
    ) -> None:
        self.project_id = project_id
        self.trigger_id = trigger_id
        self.type = type_
        self.event_type = event_type
        self.workflow_id = workflow_id
        self.pinned_version = pinned_version
        self.spec_text = spec
        self.secrets = secrets

    @cached_property
    def spec(self) -> TriggerSpec:
        return TriggerSpec.from_json(self.spec_text)


class EventType:
    """One version of an event type. Its schema is compiled when the first event of the type comes, and kept."""

    def __init__(self, *, schema_id: int, project_id: str, event_type: str, version: int, spec: str) -> None:
        self.schema_id = schema_id
        self.project_id = project_id
        self.event_type = event_type
        self.version = version
        self.spec_text = spec

    @cached_property
    def schema(self) -> EventSchema | None:
        """None where it takes everything."""
        spec = EventTypeSpec.from_json(self.spec_text)
        return None if spec.takes_everything else spec.compiled


@dataclass(frozen=True, slots=True)
class Queue:
    queue_id: str
    max_concurrency: int
    ordered: bool
    max_attempts: int


@dataclass(frozen=True)
class CatalogSnapshot:
    """Everything a door or ingest decides by. All keys begin with the project."""

    version: int
    triggers: Mapping[tuple[str, str], Trigger]
    by_event: Mapping[tuple[str, str], Sequence[Trigger]]
    queues: Mapping[tuple[str, str], Queue]
    latest: Mapping[tuple[str, str], Definition]
    by_version: Mapping[tuple[str, str, int], Definition]
    by_label: Mapping[tuple[str, str, str], Definition]
    event_types: Mapping[tuple[str, str], EventType] = field(default_factory=dict)

    @cached_property
    def manual(self) -> Mapping[tuple[str, str], Sequence[Trigger]]:
        """The triggers for runs by hand, by project and workflow."""
        found: dict[tuple[str, str], list[Trigger]] = {}
        for trigger in self.triggers.values():
            if trigger.type == "manual":
                found.setdefault((trigger.project_id, trigger.workflow_id), []).append(trigger)
        return found

    @cached_property
    def keeps_order_somewhere(self) -> bool:
        """Whether any project has a queue that keeps an order."""
        return any(queue.ordered for queue in self.queues.values())

    def definition_for(self, trigger: Trigger) -> Definition | None:
        """The version that a trigger's runs take now."""
        if trigger.pinned_version is None:
            return self.latest.get((trigger.project_id, trigger.workflow_id))
        return self.by_version.get((trigger.project_id, trigger.workflow_id, trigger.pinned_version))

    def is_ordered(self, project_id: str, queue_id: str) -> bool:
        queue = self.queues.get((project_id, queue_id))
        return queue is not None and queue.ordered


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one declared thing. `change` is created, updated, unchanged or removed."""

    kind: str
    id: str
    change: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook trigger of a publication; `is_new` says that its secret has not been shown yet. Number 0: the secret is
    its sender's own.
    """

    trigger_id: str
    secret_number: int
    is_new: bool
    preset: str = "a44"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The secret that a rotation made, and the one before where it is still taken: until when."""

    number: int
    old: WebhookSecret | None


@dataclass(frozen=True, slots=True)
class PublishResult:
    published: Sequence[Published]
    warnings: Sequence[str] = ()
    hooks: Sequence[Hook] = field(default_factory=tuple)


class StoredDefinition(NamedTuple):
    """A version as the executor wants it: `spec` is JSON text."""

    spec: str
    kind: str
    bundle_digest: str | None


class Catalog(Protocol):
    """All of it raises `Unavailable` when Postgres is away."""

    async def version(self) -> int:
        """A number that changes with every publication; cheap."""

    async def snapshot(self) -> CatalogSnapshot:
        """What is in force now."""

    async def publish(self, project_id: str, files: Mapping[str, str], *, dev: bool, actor: str) -> PublishResult:
        """Check and put in force. Raises Refused with the user's file, line and column."""

    async def rotate(self, project_id: str, trigger_id: str, *, end: str | None, actor: str) -> Rotation:
        """Give a webhook trigger a new secret; see `runtime.rotation`. Raises Refused E_TRIGGER_NOT_FOUND,
        E_ROTATION_UNDERWAY.
        """

    async def keep_misses(self, misses: Sequence[FilterMiss]) -> None:
        """What filters let pass by, durable when it returns; once for a trigger and an event."""

    async def misses(self, project_id: str, trigger_id: str, limit: int) -> Sequence[KeptMiss]:
        """A trigger's misses of the last days, the newest first."""

    async def definition(self, definition_id: int) -> StoredDefinition:
        """Raises Refused E_VERSION_UNKNOWN."""

    async def bundle(self, project_id: str, digest: str) -> dict[str, str]:
        """The files of a code workflow by relative path. Raises Refused E_BUNDLE_INVALID."""

    async def connector(self, project_id: str, connector_id: str) -> ConnectorSpec:
        """Raises Refused E_CONNECTOR_UNKNOWN."""
