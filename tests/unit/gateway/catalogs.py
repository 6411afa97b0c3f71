"""Snapshots made from files, without a database."""

from collections.abc import Mapping
from datetime import UTC, datetime

from processors.ports.catalog import CatalogSnapshot, Definition, EventType, Queue, Trigger, WebhookSecret
from processors.runtime.publishing import (
    EventTypeInForce,
    InForce,
    NewEventType,
    SecretsInForce,
    TriggerInForce,
    VersionInForce,
    declared_by,
    plan,
)
from topology.publication import read_files

PROJECT = "pj_shop"
NOTHING = InForce([], {}, {}, {})


def snapshot_of(files: Mapping[str, str], project: str = PROJECT) -> CatalogSnapshot:
    """What a first publication of these files puts in force."""
    made = plan(read_files(files), NOTHING, dev=False)
    definitions = [
        Definition(
            definition_id=number,
            project_id=project,
            workflow_id=one.spec.workflow_id,
            version=one.spec.version,
            revision=one.revision,
            label=one.spec.label,
            kind=one.spec.kind,
            spec=one.spec.to_json(),
            bundle_digest=one.spec.bundle_digest,
            published_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for number, one in enumerate(made.definitions, 1)
    ]
    triggers = [
        Trigger(
            project_id=project,
            trigger_id=spec.id,
            type_=spec.type,
            event_type=spec.event,
            workflow_id=spec.workflow,
            pinned_version=spec.version,
            spec=spec.to_json(),
            secrets=[WebhookSecret(1)] if spec.type == "webhook" else [],
        )
        for spec in sorted(made.triggers, key=lambda spec: spec.id)
    ]
    by_event: dict[tuple[str, str], list[Trigger]] = {}
    for trigger in triggers:
        if trigger.event_type is not None:
            by_event.setdefault((project, trigger.event_type), []).append(trigger)
    return CatalogSnapshot(
        version=1,
        triggers={(project, one.trigger_id): one for one in triggers},
        by_event=by_event,
        queues={
            (project, spec.id): Queue(spec.id, spec.max_concurrency, spec.ordering == "by-partition", spec.max_attempts)
            for spec in made.queues
        },
        latest={(project, one.workflow_id): one for one in definitions},
        by_version={(project, one.workflow_id, one.version): one for one in definitions},
        by_label={(project, one.workflow_id, one.label): one for one in definitions},
        event_types={
            (project, one.spec.type): event_type(number, project, one) for number, one in enumerate(made.event_types, 1)
        },
    )


def event_type(number: int, project: str, made: NewEventType) -> EventType:
    return EventType(
        schema_id=number,
        project_id=project,
        event_type=made.spec.type,
        version=made.version,
        spec=made.spec.to_json(),
    )


def after(files: Mapping[str, str], before: InForce = NOTHING, *, dev: bool = False) -> InForce:
    """What is in force once these files were published on top of what was before."""
    made = plan(read_files(files, dev=dev), before, dev=dev)
    versions = [
        *before.versions,
        *(
            VersionInForce(
                len(before.versions) + at, one.spec.workflow_id, one.spec.version, one.revision, one.checksum
            )
            for at, one in enumerate(made.definitions, 1)
        ),
    ]
    triggers = {name: row for name, row in before.triggers.items() if name not in made.removed}
    triggers |= {spec.id: TriggerInForce(spec.id, spec.to_json(), declared_by(spec)) for spec in made.triggers}
    queues = {**before.queues, **{s.id: (s.max_concurrency, s.ordering, s.max_attempts) for s in made.queues}}
    secrets = {
        name: SecretsInForce(known.last, None if name in made.without_secret else known.newest)
        for name, known in before.secrets.items()
    }
    secrets |= {
        hook.trigger_id: SecretsInForce(hook.secret_number, hook.secret_number) for hook in made.hooks if hook.is_new
    }
    connectors = {**before.connectors, **{s.id: s.to_json() for s in made.connectors}}
    event_types = {
        **before.event_types,
        **{one.spec.type: EventTypeInForce(one.version, one.spec.to_json()) for one in made.event_types},
    }
    return InForce(versions, triggers, connectors, queues, secrets, event_types)
