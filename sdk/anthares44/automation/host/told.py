"""What a host says of its runs, as the JSON text of a message. The frequent ones are put together by hand: that is
several times faster than building a dict and encoding it.
"""

from collections.abc import Iterable
from typing import Any

from anthares44.automation.host.attempts import Attempt
from anthares44.automation.items import Block, Turn
from anthares44.automation.turns import Run
from anthares44.automation.wire import Message, dumps, quote


def turn(run: Run, turn: Turn, requests: Iterable[str]) -> str:
    asked, ended = ",".join(requests), "null" if turn.ended is None else _ended(turn.ended)
    return f'{{"t":"TURN",{run.wire_name},"after":{turn.after},"requests":[{asked}],"ended":{ended}}}'


def _ended(ended: dict[str, Any]) -> str:
    if ended["status"] == "succeeded":
        return f'{{"status":"succeeded","value":{quote(ended["value"])}}}'
    return dumps(ended)


def done(attempt: Attempt, text: str) -> str:
    return f'{{"t":"DONE",{_outcome(attempt)},"value":{quote(text)}}}'


def failed(attempt: Attempt, error: dict[str, Any], *, lingers: bool) -> str:
    more = ',"lingers":true' if lingers else ""
    return f'{{"t":"FAILED",{_outcome(attempt)},"error":{dumps(error)}{more}}}'


def _outcome(attempt: Attempt) -> str:
    cost, cpu = attempt.spent()
    return (
        f'{attempt.run.wire_name},"item":{quote(attempt.item.id)},"attempt":{attempt.number},'
        f'"token":{quote(attempt.token)},"cost":{cost:.6f},"cpu":{cpu:.6f}'
    )


def diverged(run: Run, block: Block) -> str:
    return dumps(
        {
            "t": "DIVERGED",
            "run": run.run_id,
            "fence": run.fence,
            "code": block.code,
            "expected": block.expected,
            "seen": block.seen,
            "file": block.file,
            "line": block.line,
            "message": block.message,
        },
    )


def not_begun(message: Message, code: str, text: str, *, expected: str) -> str:
    """DIVERGED for a START whose body cannot be begun."""
    names = {name: message[name] for name in ("run", "fence")}
    nowhere = {"seen": None, "file": None, "line": None}
    return dumps({"t": "DIVERGED", **names, "code": code, "expected": expected, **nowhere, "message": text})


def unknown_item(message: Message) -> str:
    """FAILED for a RUN of something that the body has not asked for."""
    error = {
        "code": "E_INTERNAL",
        "type": "LookupError",
        "message": f"the body has requested no step {message['item']!r} that is still open",
        "file": None,
        "line": None,
        "retryable": False,
        "retry_after": None,
    }
    fields = {name: message[name] for name in ("run", "fence", "item", "attempt", "token")}
    return dumps({"t": "FAILED", **fields, "error": error, "cost": 0.0, "cpu": 0.0})
