"""Run events: what happened to a run, for projections and for users' consumers.

`id` is computed from run and sequence, so an event that is published again carries the same id.
"""

import msgspec

from schemas.avro import UndecodableError, codec
from schemas.errors import Refused


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One change of state. `occurred_at` is ISO 8601 in UTC; `sequence` counts a run's changes from 1."""

    run_id: str
    project_id: str
    workflow_id: str
    version: str
    state: str
    occurred_at: str
    sequence: int
    id: str = ""
    error_code: str | None = None
    event_id: str | None = None
    trigger_id: str | None = None
    correlation_id: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            msgspec.structs.force_setattr(self, "id", run_event_id(self.run_id, self.sequence))


_codec = codec("run_event")


def run_event_id(run_id: str, sequence: int) -> str:
    """Compute the id of a run's event: `rev_<the run's ULID>_<sequence>`."""
    return f"rev_{run_id.removeprefix('run_')}_{sequence}"


def encode_run_event(event: RunEvent) -> bytes:
    return _codec.encode_struct(event)


def decode_run_event(data: bytes) -> RunEvent:
    """Read a run event. Raises Refused E_ENVELOPE_INVALID."""
    try:
        return RunEvent(**_codec.decode(data))
    except UndecodableError as exc:
        raise Refused("E_ENVELOPE_INVALID", f"the record is no run event: {exc}") from exc
