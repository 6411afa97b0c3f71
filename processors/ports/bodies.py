"""Bodies: where workflow code lives while the executor owns its run.

Two implementations keep one promise: step hosts (code workflows) and the YAML interpreter. A body gets
deliveries and answers each with exactly one turn; attempts of steps run beside it. Every call and
callback carries (run id, fence): what belongs to another life of the run is ignored.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from processors.engine.requests import BodyEnd, Request
from schemas.records import ErrorInfo


class Past(msgspec.Struct, frozen=True, gc=False):
    """One item of a run's history. Settled ones (`outcome` succeeded, failed or skipped) are deliveries in
    order of `seq`; with `outcome` None the item was asked for at `after` and is not settled yet.
    """

    seq: int
    item: str
    kind: str
    after: int
    outcome: str | None
    value: str | None
    error: ErrorInfo | None
    at: datetime


class BodyStart(msgspec.Struct, frozen=True, gc=False):
    """Everything a body needs to begin or to come back. `losses`: how many times in a row its owner or its host went
    with it; after the first it is kept apart, after a second one alone (quarantine). With `input_ref` the input lies in
    storage.
    """

    run_id: str
    fence: int
    project_id: str
    workflow_id: str
    definition_id: int
    version: str
    kind: str
    generation: int
    input: str
    started_at: datetime
    idempotency_key: str
    partition_key: str
    lane: str
    event_id: str
    event_type: str
    occurred_at: datetime
    history: Sequence[Past]
    go_until: float | None
    losses: int = 0
    input_ref: str | None = None


class BodyListener(Protocol):
    """The executor's side. Called on the event loop, never blocks, never raises."""

    def turned(self, run_id: str, fence: int, after: int, requests: Sequence[Request], end: BodyEnd | None) -> None:
        """The answer to a delivery (or to the start): what the body asks for, or how it ended."""

    def succeeded(self, run_id: str, fence: int, item: str, attempt: int, token: str, value: str, cost: float) -> None:
        """An attempt has a result: `value` is checked, redacted JSON text; `cost` is in seconds."""

    def failed(
        self, run_id: str, fence: int, item: str, attempt: int, token: str, error: ErrorInfo, cost: float
    ) -> None:
        """An attempt failed."""

    def diverged(self, run_id: str, fence: int, error: ErrorInfo) -> None:
        """The body cannot go on as it is (replay took another way, bundle broken): the run becomes blocked."""

    def late(
        self,
        run_id: str,
        fence: int,
        item: str,
        attempt: int,
        status: str,
        value: str | None,
        error: ErrorInfo | None,
        cost: float,
    ) -> None:
        """The outcome (succeeded, failed) of an attempt whose run was dropped while it could not be stopped."""

    def lost(
        self,
        runs: Sequence[tuple[str, int]],
        reason: str,
        *,
        suspected: bool = True,
        unbegun: Collection[tuple[str, str]] = (),
    ) -> None:
        """A step host died, or was given up: these runs have no body any more. What they had in flight is unknown, but
        for `unbegun` (run id, item): attempts that had not begun. Not `suspected`: another run's doing.
        """


class Bodies(Protocol):
    """`go_until` is `time.monotonic()` until which the body's side may start plain first attempts itself."""

    def start(self, run: BodyStart) -> None:
        """Begin or come back; answered by `turned`, `diverged` or `lost`."""

    def deliver(
        self,
        run_id: str,
        fence: int,
        seq: int,
        item: str,
        outcome: str,
        value: str | None,
        error: ErrorInfo | None,
        at: datetime,
        go_until: float | None,
    ) -> None:
        """Hand a recorded outcome to the body. `value` None means: the one its attempt just returned."""

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        """Start an attempt of a step that the body has asked for."""

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        """Cancel the running attempt of an item, if there is one."""

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        """Cancel the body; it answers with a turn that ends it."""

    def drop(self, run_id: str, fence: int) -> None:
        """Forget the run at once. Only `late` may follow, for an attempt that could not be stopped."""

    async def aclose(self) -> None:
        """Stop everything; no callback follows."""
