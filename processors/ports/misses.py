"""What the filters of triggers let pass by, kept for people to look at where a trigger asks for it."""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct


class FilterMiss(Struct, frozen=True, gc=False):
    """One trigger's filter, one event. `occurred_at` is ISO-8601 UTC text."""

    project_id: str
    trigger_id: str
    event_id: str
    event_type: str
    idempotency_key: str
    occurred_at: str


class KeptMiss(NamedTuple):
    """A miss as it is read back."""

    project_id: str
    trigger_id: str
    event_id: str
    event_type: str
    idempotency_key: str
    occurred_at: datetime
    missed_at: datetime
