"""What a publication changes, decided before anything is written. Pure: what is in force goes in, a plan comes out.

A published version never changes: other content under the same number is refused. While developing, a
save makes a revision instead (`3-dev.1`, `3-dev.2`), and the newest of a number is the one in force.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from processors.ports.catalog import Hook, Published, PublishResult
from schemas.errors import Refused
from schemas.event_schemas.dialect import pointer
from topology.code_workflows.bundles import Bundle
from topology.connectors import ConnectorSpec
from topology.event_types import EventTypeSpec
from topology.parts import Source
from topology.publication import KnownNames, Publication, check_references
from topology.queues import DEFAULT_QUEUE, QueueSpec, default_queue
from topology.triggers import TriggerSpec
from topology.workflows import WorkflowSpec

CREATED = "created"
UPDATED = "updated"
UNCHANGED = "unchanged"
REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class VersionInForce:
    definition_id: int
    workflow_id: str
    version: int
    revision: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class TriggerInForce:
    trigger_id: str
    spec: str
    declared_by: str | None


class SecretsInForce(NamedTuple):
    """Of a trigger's webhook secrets: the last number ever given, and the newest that lives."""

    last: int
    newest: int | None


class EventTypeInForce(NamedTuple):
    """The newest version of an event type."""

    version: int
    spec: str


@dataclass(frozen=True, slots=True)
class InForce:
    """What a project has. `connectors` holds stored specs, `queues` (limit, ordering, attempts), `secrets` those of
    triggers that are gone as well.
    """

    versions: Sequence[VersionInForce]
    triggers: Mapping[str, TriggerInForce]
    connectors: Mapping[str, str]
    queues: Mapping[str, tuple[int, str, int]]
    secrets: Mapping[str, SecretsInForce] = field(default_factory=dict)
    event_types: Mapping[str, EventTypeInForce] = field(default_factory=dict)

    def known_names(self) -> KnownNames:
        """What a publication may refer to beside what it holds itself."""
        workflows: dict[str, set[int]] = {}
        for row in self.versions:
            workflows.setdefault(row.workflow_id, set()).add(row.version)
        operations = {name: list(ConnectorSpec.from_json(text).operations) for name, text in self.connectors.items()}
        return KnownNames(workflows, operations, set(self.queues))


@dataclass(frozen=True, slots=True)
class NewDefinition:
    spec: WorkflowSpec
    revision: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class NewEventType:
    spec: EventTypeSpec
    version: int


@dataclass
class Plan:
    """What to write; `published` says it to the user."""

    definitions: list[NewDefinition] = field(default_factory=list)
    triggers: list[TriggerSpec] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    connectors: list[ConnectorSpec] = field(default_factory=list)
    queues: list[QueueSpec] = field(default_factory=list)
    event_types: list[NewEventType] = field(default_factory=list)
    bundles: list[Bundle] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)

    @property
    def changes_anything(self) -> bool:
        made = self.definitions or self.triggers or self.removed or self.connectors or self.queues
        return bool(made or self.event_types or self.new_secrets)

    @property
    def new_secrets(self) -> list[Hook]:
        return [hook for hook in self.hooks if hook.is_new]

    @property
    def without_secret(self) -> list[str]:
        """Triggers that are gone, or have no secret of ours (any more): what secrets they had end."""
        return [*self.removed, *(trigger.id for trigger in self.triggers if not trigger.has_own_secret)]

    def say(self, kind: str, name: str, change: str, version: str | None = None) -> None:
        self.published.append(Published(kind, name, change, version))

    def result(self) -> PublishResult:
        return PublishResult(tuple(self.published), tuple(self.warnings), tuple(self.hooks))


def declared_by(trigger: TriggerSpec) -> str | None:
    """The workflow whose file declares the trigger; None for one of a topology file."""
    return trigger.workflow if trigger.owner == "workflow" else None


def plan(publication: Publication, in_force: InForce, *, dev: bool) -> Plan:
    """Raises Refused: E_VERSION_EXISTS, an unknown reference, a trigger id that belongs to another file."""
    check_references(publication, in_force.known_names())
    made = Plan(warnings=list(publication.warnings), bundles=list(publication.bundles))
    outdated: set[str] = set()
    for spec in sorted(publication.workflows, key=lambda spec: (spec.workflow_id, spec.version)):
        if _is_outdated(spec, in_force):
            outdated.add(spec.workflow_id)
        _plan_workflow(made, publication, spec, in_force, dev=dev)
    wanted = [spec for spec in publication.triggers if declared_by(spec) not in outdated]
    for trigger in wanted:
        _plan_trigger(made, trigger, in_force)
    _plan_removals(made, {spec.workflow_id for spec in publication.workflows} - outdated, wanted, in_force)
    for connector in publication.connectors:
        _plan_connector(made, connector, in_force.connectors.get(connector.id))
    _plan_queues(made, publication.queues, in_force)
    for event_type in publication.event_types:
        row = in_force.event_types.get(event_type.type)
        if row is not None:
            _check_compatibility(made, event_type, row, publication.sources.get(event_type.type), dev=dev)
        _plan_event_type(made, event_type, row)
    return made


def _is_outdated(spec: WorkflowSpec, in_force: InForce) -> bool:
    """Whether a newer version is in force: then the file's triggers stay those of the newer one."""
    return any(row.workflow_id == spec.workflow_id and row.version > spec.version for row in in_force.versions)


def _plan_workflow(made: Plan, publication: Publication, spec: WorkflowSpec, in_force: InForce, *, dev: bool) -> None:
    checksum = _checksum(spec, publication.triggers)
    rows = [row for row in in_force.versions if row.workflow_id == spec.workflow_id and row.version == spec.version]
    newest = max(rows, key=lambda row: row.definition_id, default=None)
    released = next((row for row in rows if row.revision == 0), None)
    if _is_outdated(spec, in_force):
        made.warnings.append(
            f"{spec.workflow_id}: a version newer than {spec.version} is in force and stays the latest; "
            "the triggers that this file declares are left out"
        )
    same_as = newest if dev else released
    if same_as is not None and same_as.checksum == checksum:
        made.say("workflow", spec.workflow_id, UNCHANGED, _label(same_as.version, same_as.revision))
        if newest is not None and newest is not same_as:
            seen = _label(newest.version, newest.revision)
            made.warnings.append(f"{spec.workflow_id}: {seen} was published later and stays in force; raise `version`")
        return
    if released is not None and not dev:
        raise Refused(
            "E_VERSION_EXISTS",
            f"version {spec.version} of {spec.workflow_id} was published with other content, and runs may depend "
            f"on it; raise `version` to {max(row.version for row in _all(spec, in_force)) + 1} and publish again",
            details={"workflow_id": spec.workflow_id, "version": spec.version},
        )
    revision = max((row.revision for row in rows), default=0) + 1 if dev else 0
    label = _label(spec.version, revision)
    made.definitions.append(NewDefinition(spec.labelled(label), revision, checksum))
    made.say("workflow", spec.workflow_id, UPDATED if _all(spec, in_force) else CREATED, label)


def _all(spec: WorkflowSpec, in_force: InForce) -> list[VersionInForce]:
    return [row for row in in_force.versions if row.workflow_id == spec.workflow_id]


def _label(version: int, revision: int) -> str:
    return f"{version}-dev.{revision}" if revision else str(version)


def _checksum(spec: WorkflowSpec, triggers: Iterable[TriggerSpec]) -> bytes:
    """Over the definition and the triggers that belong to it: they are one version's content."""
    own = sorted(trigger.to_json() for trigger in triggers if declared_by(trigger) == spec.workflow_id)
    content = "\0".join([spec.labelled(str(spec.version)).to_json(), *own])
    return hashlib.sha256(content.encode()).digest()


def _plan_trigger(made: Plan, trigger: TriggerSpec, in_force: InForce) -> None:
    row, owner = in_force.triggers.get(trigger.id), declared_by(trigger)
    if row is not None and row.declared_by != owner:
        whose = "a topology file" if row.declared_by is None else f"the file of {row.declared_by}"
        raise Refused("E_SPEC_INVALID", f"the trigger {trigger.id} is declared by {whose} already; give it another id")
    if trigger.type == "webhook":
        made.hooks.append(_hook(trigger, in_force.secrets.get(trigger.id)))
    if row is not None and row.spec == trigger.to_json():
        made.say("trigger", trigger.id, UNCHANGED)
        return
    made.triggers.append(trigger)
    made.say("trigger", trigger.id, CREATED if row is None else UPDATED)


def _hook(trigger: TriggerSpec, known: SecretsInForce | None) -> Hook:
    """With the secret that lives, else with one that there never was: a dead secret stays dead."""
    if not trigger.has_own_secret:
        return Hook(trigger.id, 0, is_new=False, preset=trigger.preset)
    last, newest = known or SecretsInForce(0, None)
    return Hook(trigger.id, newest or last + 1, is_new=newest is None, preset=trigger.preset)


def _plan_removals(made: Plan, workflows: set[str], wanted: Iterable[TriggerSpec], in_force: InForce) -> None:
    """A trigger that the new version of its own file no longer declares goes."""
    kept = {trigger.id for trigger in wanted}
    for row in in_force.triggers.values():
        if row.declared_by in workflows and row.trigger_id not in kept:
            made.removed.append(row.trigger_id)
            made.say("trigger", row.trigger_id, REMOVED)


def _plan_connector(made: Plan, connector: ConnectorSpec, stored: str | None) -> None:
    if stored == connector.to_json():
        made.say("connector", connector.id, UNCHANGED)
        return
    made.connectors.append(connector)
    made.say("connector", connector.id, CREATED if stored is None else UPDATED)


def _check_compatibility(
    made: Plan, event_type: EventTypeSpec, row: EventTypeInForce, source: Source | None, *, dev: bool
) -> None:
    """Events that were accepted, and senders that know the version before, have to go on. Raises Refused."""
    if event_type.compatibility == "none" or event_type.to_json() == row.spec:
        return
    place = event_type.narrowed(EventTypeSpec.from_json(row.spec))
    if place is None:
        return
    found = (
        f"{event_type.type}: the schema is not seen to take all that its version {row.version} took"
        f"{' at ' + pointer(place) if place else ''}; take as much there, declare a type of another name, or write "
        "`compatibility: none` where no sender and no event under way is left behind"
    )
    if not dev:
        where = None if source is None else source.place(event_type.path_of(place))
        raise Refused("E_SCHEMA_INCOMPATIBLE", found, where, details={"path": pointer(place)})
    made.warnings.append(found)


def _plan_event_type(made: Plan, event_type: EventTypeSpec, row: EventTypeInForce | None) -> None:
    """What is declared otherwise than before is the type's next version."""
    if row is not None and row.spec == event_type.to_json():
        made.say("event", event_type.type, UNCHANGED, str(row.version))
        return
    version = 1 if row is None else row.version + 1
    made.event_types.append(NewEventType(event_type, version))
    made.say("event", event_type.type, CREATED if row is None else UPDATED, str(version))


def _plan_queues(made: Plan, queues: Iterable[QueueSpec], in_force: InForce) -> None:
    for queue in queues:
        row = in_force.queues.get(queue.id)
        if row == (queue.max_concurrency, queue.ordering, queue.max_attempts):
            made.say("queue", queue.id, UNCHANGED)
            continue
        made.queues.append(queue)
        made.say("queue", queue.id, CREATED if row is None else UPDATED)
    if DEFAULT_QUEUE not in in_force.queues:  # no file can declare it
        made.queues.append(default_queue())
