"""What the executor says to a host about a run, as messages of the frame format."""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from processors.ports.bodies import BodyStart, Past
from schemas.records import ErrorInfo

Message = dict[str, Any]

HISTORY_LETTERS = 48 * 1024  # a message of more than 64 KB would be cut into chunks
HISTORY_ITEMS = 500


@lru_cache(maxsize=256)  # all that one commit delivers has one time
def instant(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def wire_error(error: ErrorInfo | None) -> Message | None:
    if error is None:
        return None
    return {
        "code": error.code,
        "type": error.type,
        "message": error.message,
        "file": None,
        "line": error.line,
        "retryable": error.retryable,
        "retry_after": error.retry_after,
    }


def start_messages(start: BodyStart, workflow: str, version: str) -> Iterator[Message]:
    """START and its HISTORY. The run's chance is seeded by its id, which no other run has."""
    yield {
        "t": "START",
        "run": start.run_id,
        "fence": start.fence,
        "workflow": workflow,
        "version": version,
        "generation": start.generation,
        "input": start.input,
        "started_at": instant(start.started_at),
        "seed": start.run_id,
        "key": start.idempotency_key,
        "history": len(start.history),
        "go_until": start.go_until,
    }
    batch: list[Message] = []
    letters = 0
    for left, past in zip(range(len(start.history) - 1, -1, -1), start.history, strict=True):
        batch.append(_past(past))
        letters += len(past.value or "") + 200
        if left == 0 or letters >= HISTORY_LETTERS or len(batch) >= HISTORY_ITEMS:
            yield {
                "t": "HISTORY",
                "run": start.run_id,
                "fence": start.fence,
                "items": batch,
                "last": left == 0,
            }
            batch, letters = [], 0


def _past(past: Past) -> Message:
    """What the body cancelled by itself was never delivered to it: it is sent as opened."""
    settled = past.outcome in {"succeeded", "failed"}
    item: Message = {
        "seq": past.seq,
        "item": past.item,
        "kind": past.kind,
        "after": past.after,
        "status": past.outcome if settled else "opened",
        "at": instant(past.at),
    }
    if settled and past.value is not None:
        item["value"] = past.value
    if settled and past.error is not None:
        item["error"] = wire_error(past.error)
    return item


def delivery(
    run_id: str,
    fence: int,
    seq: int,
    item: str,
    outcome: str,
    value: str | None,
    error: ErrorInfo | None,
    at: datetime,
    go_until: float | None,
) -> Message:
    message: Message = {
        "t": "DELIVER",
        "run": run_id,
        "fence": fence,
        "seq": seq,
        "item": item,
        "outcome": outcome,
        "at": instant(at),
        "go_until": go_until,
    }
    if value is not None:
        message["value"] = value
    if error is not None:
        message["error"] = wire_error(error)
    return message


def attempt_of(run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> Message:
    return {
        "t": "RUN",
        "run": run_id,
        "fence": fence,
        "item": item,
        "attempt": attempt,
        "token": token,
        "key": key,
        "timeout": timeout,
    }
