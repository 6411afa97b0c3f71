"""What the triggers of an envelope come to: runs, misses, refusals. Pure: a snapshot and an envelope go in.

An envelope that names its trigger (a webhook) makes that trigger's run and no other. A webhook's filter
is not asked again: its door has promised the run. What cannot be made is answered as a refusal in place
of the run, so that the caller keeps it; one bad trigger costs its neighbours nothing.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from processors.ports.catalog import CatalogSnapshot, Trigger
from processors.ports.misses import FilterMiss
from processors.ports.runs import NewRun
from processors.runtime.new_runs import EventScope, iso, keyed_run, run_of, scope_of, stale_at
from schemas.envelope import Envelope
from schemas.errors import Refused

WEBHOOK = "webhook"


def webhook_event_type(trigger_id: str) -> str:
    """`trg_erp_sync` sends events of the type `webhook.erp_sync`."""
    return f"{WEBHOOK}.{trigger_id.removeprefix('trg_')}"


class Miss(NamedTuple):
    """A trigger whose filter let the event pass by."""

    trigger: Trigger


def match(
    snapshot: CatalogSnapshot,
    envelope: Envelope,
    *,
    millis: int | None = None,
    now: datetime | None = None,
    stored: bytes | None = None,
) -> list[NewRun | Refused | Miss]:
    """What the triggers of one envelope come to, in order of trigger id. `millis`, the stored time of acceptance, is
    needed for events whose id was chosen by their producer (see `schemas.ids.run_id`). Where `now` is told, events that
    are too old for their trigger are refused; the run that a door has promised is made, and ends when it is claimed.
    `stored` is the data of an event that only refers to it.
    """
    try:
        scope = scope_of(envelope, stored)
        triggers = triggers_for(snapshot, envelope)
    except Refused as refused:
        return [refused]
    return [
        _promised(snapshot, trigger, scope, millis)
        if trigger.type == WEBHOOK
        else asked(snapshot, trigger, scope, millis, now)
        for trigger in triggers
    ]


def kept_miss(trigger: Trigger, envelope: Envelope) -> FilterMiss | None:
    """A miss as it is kept for people to look at, where its trigger asks for that."""
    if trigger.spec.drop_on_filter_miss:
        return None
    return FilterMiss(
        envelope.project_id,
        trigger.trigger_id,
        envelope.id,
        envelope.type,
        envelope.idempotency_key,
        envelope.occurred_at,
    )


def _promised(
    snapshot: CatalogSnapshot, trigger: Trigger, scope: EventScope, millis: int | None
) -> NewRun | Refused | Miss:
    try:
        return run_of(snapshot, trigger, scope, millis=millis)
    except Refused as refused:
        return about(trigger, refused)


def asked(
    snapshot: CatalogSnapshot, trigger: Trigger, scope: EventScope, millis: int | None, now: datetime | None
) -> NewRun | Refused | Miss:
    try:
        if not accepts(trigger, scope):
            return Miss(trigger)
        check_age(trigger, scope.envelope, now)
        return keyed_run(snapshot, trigger, scope, millis)
    except Refused as refused:
        return about(trigger, refused)


def is_wanted(snapshot: CatalogSnapshot, envelope: Envelope) -> bool:
    """Whether any trigger asks for the event, whatever its filter says."""
    try:
        return bool(triggers_for(snapshot, envelope))
    except Refused:
        return False


def accepts(trigger: Trigger, scope: EventScope) -> bool:
    """Whether the trigger's filter lets the event pass. Raises Refused E_FILTER_ERROR."""
    spec = trigger.spec
    return spec.filter is None or spec.accepts(scope.event)


def check_age(trigger: Trigger, envelope: Envelope, now: datetime | None) -> None:
    """Raises Refused E_EVENT_TOO_OLD."""
    ends = stale_at(trigger, envelope)
    if now is not None and ends is not None and now > ends:
        raise Refused("E_EVENT_TOO_OLD", f"it occurred at {envelope.occurred_at}, and was wanted until {iso(ends)}")


def triggers_for(snapshot: CatalogSnapshot, envelope: Envelope) -> Sequence[Trigger]:
    """The triggers that an envelope concerns: the one it names, else those of its type."""
    if envelope.trigger_id is None:
        return snapshot.by_event.get((envelope.project_id, envelope.type), ())
    trigger = snapshot.triggers.get((envelope.project_id, envelope.trigger_id))
    if trigger is None:
        raise Refused("E_TRIGGER_NOT_FOUND", f"the trigger {envelope.trigger_id} does not exist (any more)")
    wanted = takes(trigger)
    if wanted != envelope.type:
        raise Refused(
            "E_TRIGGER_NOT_FOUND",
            f"the event names {envelope.trigger_id}, which takes {wanted or 'no events'}, not {envelope.type}",
        )
    return (trigger,)


def takes(trigger: Trigger) -> str | None:
    """The type of event that a trigger wants."""
    return webhook_event_type(trigger.trigger_id) if trigger.type == WEBHOOK else trigger.event_type


def about(trigger: Trigger, refused: Refused) -> Refused:
    """The same refusal, with the trigger it is about."""
    return Refused(
        refused.code,
        f"{trigger.trigger_id}: {refused.message}",
        refused.place,
        {**refused.details, "trigger_id": trigger.trigger_id, "workflow_id": trigger.workflow_id},
    )
