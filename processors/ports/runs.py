"""What a run is made from: the row that ingest and the door for manual runs hand to the log."""

import msgspec


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """One run to be made. `lane` is its lane's value; `ordered` says whether the lane keeps order.

    Times are ISO-8601 UTC text; `input` is JSON text, byte for byte as it was sent; `deadline` is in seconds from
    acceptance. A run that is first claimed after `stale_at` is too old to begin. With `input_ref` the input lies in
    storage, and `input` tells of it. `attempt` is the sender's; `names_trigger` tells an envelope that names its
    trigger from one that its type brought to it, `sent_partition_key` is the envelope's own where its trigger gave
    another: with them a dead letter has the envelope as it came.
    """

    run_id: str
    project_id: str
    workflow_id: str
    definition_id: int
    version: str
    queue_id: str
    lane: str
    ordered: bool
    event_id: str
    event_type: str
    trigger_id: str
    idempotency_key: str
    partition_key: str
    correlation_id: str | None
    operation_version: int
    redrive_count: int
    occurred_at: str
    input: str
    deadline: float | None = None
    stale_at: str | None = None
    input_ref: str | None = None
    attempt: int = 1
    names_trigger: bool = True
    sent_partition_key: str | None = None


class Grant(msgspec.Struct, frozen=True, gc=False):
    """A run that may advance: what a command on the commands topic says."""

    run_id: str
    fence: int
    lane: str
