"""The state of a run from its log. One that this version cannot read costs its own run and no other: it is blocked."""

from collections.abc import Sequence
from datetime import UTC

import structlog

from processors.engine import commands
from processors.engine.state import RunState, fold
from processors.ports.journal import Claim, UnreadableLog
from schemas.records import ErrorInfo, Record

_log = structlog.get_logger("executor")
UNREADABLE = ErrorInfo(
    "E_INTERNAL",
    "UnreadableLog",
    "the log of this run holds what this version of the service cannot read; the executor's log says what it was",
    retryable=False,
)


def recalled(claim: Claim, log: Sequence[Record] | UnreadableLog) -> tuple[RunState, commands.Command]:
    """The state, and what its new owner begins with."""
    command: commands.Command = commands.Claimed(claim.owner_lost)
    if not isinstance(log, UnreadableLog):
        try:
            state = fold(claim.run_id, claim.generation, log)
        except ValueError as exc:
            log = UnreadableLog(log[-1].seq, str(exc))
    if isinstance(log, UnreadableLog):
        _log.error("log_unreadable", run_id=claim.run_id, reason=log.reason)
        state, command = RunState(claim.run_id, claim.generation, log.seq), commands.Diverged(UNREADABLE)
    elif claim.is_stale and claim.stale_at is not None:
        command = commands.TooOld(claim.stale_at.astimezone(UTC))
    state.most_crashes, state.crashes = claim.max_attempts, claim.crashes
    return state, command
