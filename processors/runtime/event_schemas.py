"""Whether an event's data fits the schema that its project declared for its type. Types without one cost a look-up."""

from typing import Any

from processors.ports.catalog import CatalogSnapshot
from schemas import strict_json
from schemas.envelope import Envelope
from schemas.errors import Refused
from schemas.event_schemas.dialect import pointer

_UNREAD = object()
_LONGEST = 500


def has_schema(snapshot: CatalogSnapshot, envelope: Envelope) -> bool:
    """Whether the event's data has to be looked at."""
    found = snapshot.event_types.get((envelope.project_id, envelope.type))
    return found is not None and found.schema is not None


def unfitness(snapshot: CatalogSnapshot, envelope: Envelope, stored: bytes | None = None) -> Refused | None:
    """Why no door would take the event: its data does not fit. `stored` is the data of one that only refers to it."""
    if not has_schema(snapshot, envelope):
        return None
    try:
        check_data(snapshot, envelope.project_id, envelope.type, envelope.data if stored is None else stored)
    except Refused as refused:
        return refused
    return None


def check_data(
    snapshot: CatalogSnapshot, project_id: str, event_type: str, text: str | bytes, data: Any = _UNREAD
) -> None:
    """`text` is the data as it was sent, `data` the same where it was read already. Raises Refused E_EVENT_SCHEMA: its
    message holds nothing of the data, its details the pointer to the place.
    """
    declared = snapshot.event_types.get((project_id, event_type))
    if declared is None or declared.schema is None:
        return
    value = data
    if data is _UNREAD:
        value = strict_json.decode(text if isinstance(text, bytes) else text.encode())
    found = declared.schema.mismatch(value, len(text))
    if found is None:
        return
    where = f"at {pointer(found.shown)[:_LONGEST]}" if found.path else "as a whole"
    raise Refused(
        "E_EVENT_SCHEMA",
        f"the data does not fit version {declared.version} of the schema of {event_type}: {where} it is {found.seen}; "
        f"expected {found.expected}",
        details={
            "path": pointer(found.path)[:_LONGEST],
            "seen": found.seen,
            "expected": found.expected,
            "event_type": event_type,
            "schema_version": declared.version,
        },
    )
