"""Events whose data nobody can read: what may be known of their runs all the same. Pure."""

from processors.ports.catalog import CatalogSnapshot
from processors.runtime.event_schemas import has_schema
from processors.runtime.matching import about, triggers_for
from schemas.envelope import Envelope
from schemas.errors import Refused


def keeps_order(snapshot: CatalogSnapshot, envelope: Envelope) -> bool:
    """Whether any run of the event, whatever filters say, would have a place in a lane that keeps its order."""
    try:
        made = [snapshot.definition_for(trigger) for trigger in triggers_for(snapshot, envelope)]
    except Refused:
        return False
    return any(one is not None and snapshot.is_ordered(envelope.project_id, one.spec.queue_id) for one in made)


def refused_unread(
    snapshot: CatalogSnapshot, envelope: Envelope, refused: Refused, *, is_accepted: bool
) -> list[Refused]:
    """The refusal, of each trigger that asks for the event; of nobody, where the schema of an event that no door has
    asked would have had to say something first.
    """
    if not is_accepted and has_schema(snapshot, envelope):
        return [refused]
    return [about(one, refused) for one in triggers_for(snapshot, envelope)]
