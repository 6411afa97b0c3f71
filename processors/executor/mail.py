"""Mail from outside, opened into the engine's commands."""

import json
from collections.abc import Sequence

import structlog

from processors.engine import commands
from processors.ports.journal import Mail

_log = structlog.get_logger("executor")


def open_mail(mail: Mail) -> Sequence[commands.Command]:
    """What a letter asks for; nothing, with a line in the log, where this version does not know its kind."""
    if mail.kind == "cancel":
        return [commands.Cancel(mail.actor, _reason_of(mail.body))]
    _log.error("unknown_mail", run_id=mail.run_id, kind=mail.kind)
    return []


def _reason_of(body: str) -> str:
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    reason = told.get("reason") if isinstance(told, dict) else None
    return str(reason or "no reason given")
