"""The run that is made of an event, by hand, or once more: version, queue, lane, partition key, id. Pure.

What cannot be made is a refusal. Whether anybody asks for the event is not asked here (`matching`).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec

from processors.ports.catalog import CatalogSnapshot, Definition, Trigger
from processors.ports.runs import NewRun
from schemas import strict_json
from schemas.envelope import Envelope, data_hash
from schemas.errors import Refused
from schemas.ids import run_id as run_id_of
from schemas.stored_bodies import described
from topology.names import hint

MANUAL_TRIGGER = "trg_manual"
EVENT = "event"
_UNREAD = object()
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)  # what cannot be counted on to here cannot be stored either


class EventScope:
    """An envelope as expressions see it. The data is read when the first expression asks for it."""

    def __init__(self, envelope: Envelope, data: Any = _UNREAD) -> None:
        self.envelope = envelope
        self._data = data

    @property
    def data(self) -> Any:
        if self._data is _UNREAD:
            self._data = strict_json.decode(self.envelope.data.encode())
        return self._data

    @cached_property
    def event(self) -> Mapping[str, Any]:
        envelope = self.envelope
        return {
            "id": envelope.id,
            "type": envelope.type,
            "idempotency_key": envelope.idempotency_key,
            "partition_key": envelope.partition_key,
            "occurred_at": envelope.occurred_at,
            "attempt": envelope.attempt,
            "trigger_id": envelope.trigger_id,
            "project_id": envelope.project_id,
            "correlation_id": envelope.correlation_id,
            "operation_version": envelope.operation_version,
            "redrive_count": envelope.redrive_count,
            "data": self.data,
        }


def scope_of(envelope: Envelope, stored: bytes | None) -> EventScope:
    """`stored` is the data of an event that only refers to it."""
    return EventScope(envelope) if stored is None else EventScope(envelope, strict_json.decode(stored))


def run_of(snapshot: CatalogSnapshot, trigger: Trigger, scope: EventScope, *, millis: int | None = None) -> NewRun:
    """The run that a trigger makes of an event; of a webhook, the run that its door promises.

    Raises Refused E_VERSION_UNKNOWN, E_EXPRESSION.
    """
    definition = _definition(snapshot, trigger)
    envelope = scope.envelope
    run_id = run_id_of(envelope.project_id, envelope.id, trigger.trigger_id, envelope.operation_version, millis)
    run = _new_run(snapshot, definition, scope, run_id, trigger.trigger_id)
    ends = stale_at(trigger, envelope)
    return run if ends is None else msgspec.structs.replace(run, stale_at=iso(ends))


def manual_run(
    snapshot: CatalogSnapshot,
    *,
    project_id: str,
    workflow_id: str,
    version: str | None,
    event_id: str,
    idempotency_key: str,
    occurred_at: str,
    input_text: str,
    trigger_id: str | None = None,
) -> NewRun:
    """A run asked for by hand, by the manual trigger that is named, or by the workflow's own where it has one.

    `version` is a label such as `3`; None takes the trigger's, or the latest.
    Raises Refused E_TRIGGER_NOT_FOUND, E_WORKFLOW_NOT_FOUND, E_VERSION_UNKNOWN, E_EXPRESSION.
    """
    trigger = _manual_trigger(snapshot, project_id, workflow_id, trigger_id)
    if trigger is None or version is not None:
        definition = _chosen(snapshot, project_id, workflow_id, version)
    else:
        definition = _definition(snapshot, trigger)
    chosen = MANUAL_TRIGGER if trigger is None else trigger.trigger_id
    envelope = Envelope(
        id=event_id,
        type=f"manual.{workflow_id.removeprefix('wf_')}",
        idempotency_key=idempotency_key,
        partition_key=idempotency_key,
        occurred_at=occurred_at,
        data=input_text,
        trigger_id=chosen,
        project_id=project_id,
    )
    run_id = run_id_of(project_id, event_id, chosen, envelope.operation_version)
    return _new_run(snapshot, definition, EventScope(envelope), run_id, chosen)


def run_again(
    snapshot: CatalogSnapshot,
    envelope: Envelope,
    workflow_id: str,
    trigger_id: str,
    *,
    millis: int,
    stored: bytes | None = None,
) -> NewRun:
    """The run of an event that had one before: of the version that its trigger takes now, the latest where the trigger
    is gone. No filter is asked: the event was accepted. `stored` as in `match`. Raises Refused as `run_of`, and
    E_WORKFLOW_NOT_FOUND.
    """
    scope = scope_of(envelope, stored)
    trigger = snapshot.triggers.get((envelope.project_id, trigger_id))
    if trigger is not None and trigger.workflow_id == workflow_id:
        if trigger.type == EVENT:
            return keyed_run(snapshot, trigger, scope, millis)
        return run_of(snapshot, trigger, scope, millis=millis)
    latest = _chosen(snapshot, envelope.project_id, workflow_id, None)
    run_id = run_id_of(envelope.project_id, envelope.id, trigger_id, envelope.operation_version, millis)
    return _new_run(snapshot, latest, scope, run_id, trigger_id)


def keyed_run(snapshot: CatalogSnapshot, trigger: Trigger, scope: EventScope, millis: int | None) -> NewRun:
    """As `run_of`, with the partition key that the trigger gives the event; the envelope's own is kept beside it."""
    run, sent = run_of(snapshot, trigger, keyed(trigger, scope), millis=millis), scope.envelope.partition_key
    return run if run.partition_key == sent else msgspec.structs.replace(run, sent_partition_key=sent)


def keyed(trigger: Trigger, scope: EventScope) -> EventScope:
    """The event with the partition key that its trigger gives it; a webhook's door does this once, for good.

    Raises Refused E_EXPRESSION.
    """
    if trigger.spec.partition_key is None:
        return scope
    key = trigger.spec.partition_of(scope.event)
    return EventScope(msgspec.structs.replace(scope.envelope, partition_key=key), scope.data)


def stale_at(trigger: Trigger, envelope: Envelope) -> datetime | None:
    """From when on the event is too old for the trigger."""
    if trigger.spec.max_age is None:
        return None
    occurred = datetime.fromisoformat(envelope.occurred_at)
    longest = timedelta(seconds=trigger.spec.max_age)
    return occurred + longest if occurred < _NEVER - longest else None


def iso(moment: datetime) -> str:
    """As envelopes write times."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _manual_trigger(
    snapshot: CatalogSnapshot, project_id: str, workflow_id: str, trigger_id: str | None
) -> Trigger | None:
    """The manual trigger that a run by hand goes through; None where none is declared."""
    manual = snapshot.manual.get((project_id, workflow_id), ())
    if trigger_id is None and len(manual) <= 1:
        return manual[0] if manual else None
    names = [trigger.trigger_id for trigger in manual]
    if trigger_id in names:
        return manual[names.index(trigger_id)]
    known = f"its manual triggers are {', '.join(names)}" if names else "it has no manual trigger"
    if trigger_id is None:
        raise Refused(
            "E_TRIGGER_NOT_FOUND", f"{workflow_id} can be started in several ways: {known}; name one in `trigger`"
        )
    raise Refused("E_TRIGGER_NOT_FOUND", f"{trigger_id[:80]!r} starts no {workflow_id} by hand: {known}")


def _definition(snapshot: CatalogSnapshot, trigger: Trigger) -> Definition:
    definition = snapshot.definition_for(trigger)
    if definition is None:
        wanted = "a version" if trigger.pinned_version is None else f"version {trigger.pinned_version}"
        raise Refused("E_VERSION_UNKNOWN", f"{wanted} of {trigger.workflow_id} is not published")
    return definition


def _chosen(snapshot: CatalogSnapshot, project_id: str, workflow_id: str, version: str | None) -> Definition:
    latest = snapshot.latest.get((project_id, workflow_id))
    if latest is None:
        known = {name for project, name in snapshot.latest if project == project_id}
        raise Refused("E_WORKFLOW_NOT_FOUND", f"{workflow_id[:80]!r} is not published{hint(workflow_id, known)}")
    if version is None:
        return latest
    found = snapshot.by_label.get((project_id, workflow_id, version))
    if found is None:
        raise Refused(
            "E_VERSION_UNKNOWN",
            f"version {version[:40]!r} of {workflow_id} is not published; the latest is {latest.label}",
        )
    return found


def _new_run(
    snapshot: CatalogSnapshot, definition: Definition, scope: EventScope, run_id: str, trigger_id: str
) -> NewRun:
    envelope = scope.envelope
    queue_id = definition.spec.queue_id
    lane = _lane(definition, scope, run_id)
    return NewRun(
        run_id=run_id,
        project_id=envelope.project_id,
        workflow_id=definition.workflow_id,
        definition_id=definition.definition_id,
        version=definition.label,
        queue_id=queue_id,
        lane=envelope.partition_key if lane is None else lane,
        ordered=snapshot.is_ordered(envelope.project_id, queue_id),
        event_id=envelope.id,
        event_type=envelope.type,
        trigger_id=trigger_id,
        idempotency_key=envelope.idempotency_key,
        partition_key=envelope.partition_key,
        correlation_id=envelope.correlation_id,
        operation_version=envelope.operation_version,
        redrive_count=envelope.redrive_count,
        occurred_at=envelope.occurred_at,
        input=envelope.data if envelope.data_ref is None else _described(envelope),
        deadline=definition.spec.deadline,
        input_ref=envelope.data_ref,
        attempt=envelope.attempt,
        names_trigger=envelope.trigger_id is not None,
    )


def _described(envelope: Envelope) -> str:
    return described(envelope.data_ref or "", envelope.data_size, data_hash(envelope).hex())


def _lane(definition: Definition, scope: EventScope, run_id: str) -> str | None:
    """The lane by the workflow's own key; the data is read only where there is one."""
    spec = definition.spec
    if spec.partition_template is None:
        return None
    run = {
        "id": run_id,
        "idempotency_key": scope.envelope.idempotency_key,
        "workflow": definition.workflow_id,
        "version": definition.label,
    }
    return spec.lane_of({"input": scope.data, "data": scope.data, "event": scope.event, "run": run})
