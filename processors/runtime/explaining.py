"""What each trigger would do with an event, and why: asked by people, and pure like what it explains."""

from datetime import datetime
from typing import NamedTuple

from processors.ports.catalog import CatalogSnapshot, Trigger
from processors.ports.runs import NewRun
from processors.runtime.event_schemas import unfitness
from processors.runtime.matching import Miss, asked, takes
from processors.runtime.new_runs import EventScope
from schemas.envelope import Envelope
from schemas.errors import Refused


class Verdict(NamedTuple):
    """What a trigger would do with an event: make this run, or nothing, and why."""

    trigger: Trigger
    run: NewRun | None
    why: str
    code: str | None = None


def explain(snapshot: CatalogSnapshot, envelope: Envelope, now: datetime) -> list[Verdict]:
    """What each trigger of the envelope's project would do with it now, a webhook's door as well. Nothing is done."""
    scope, millis = EventScope(envelope), int(now.timestamp() * 1000)
    unfit = unfitness(snapshot, envelope)
    own = sorted(name for project, name in snapshot.triggers if project == envelope.project_id)
    return [_verdict(snapshot, snapshot.triggers[envelope.project_id, name], scope, millis, now, unfit) for name in own]


def _verdict(
    snapshot: CatalogSnapshot, trigger: Trigger, scope: EventScope, millis: int, now: datetime, unfit: Refused | None
) -> Verdict:
    envelope = scope.envelope
    if envelope.trigger_id not in (None, trigger.trigger_id):
        return Verdict(trigger, None, f"the event names {envelope.trigger_id}")
    if takes(trigger) != envelope.type:
        return Verdict(trigger, None, f"it takes {takes(trigger) or 'no events'}")
    if unfit is not None:
        return Verdict(trigger, None, unfit.message, unfit.code)
    found = asked(snapshot, trigger, scope, millis, now)
    if isinstance(found, Miss):
        return Verdict(trigger, None, f"its filter is not true: {trigger.spec.filter}")
    if isinstance(found, Refused):
        return Verdict(trigger, None, found.message, found.code)
    return Verdict(trigger, found, "it starts a run")
