"""What a rotation changes, decided before anything is written: a new secret, and when those before it end.

Two secrets live at most: the newest, and for 48 hours the one that senders had before. Nothing dies unasked, so that a
rotation that is asked for twice, by a retry or by two people, is refused and does no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from processors.ports.catalog import WebhookSecret
from schemas.errors import Refused

OVERLAP_SECONDS: Final = 48 * 3600.0
End = Literal["old", "newest"]


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """The number of the new secret; which end at once, and which after the overlap."""

    number: int
    at_once: Sequence[int]
    later: Sequence[int]


def plan_rotation(trigger_id: str, live: Sequence[WebhookSecret], last: int, end: str | None) -> RotationPlan:
    """`live` has the newest first; `last` is the highest number ever given. `end` may say `old`: all before the new one
    end at once, because one has leaked; or `newest`: only the newest does, because it never reached its sender.

    Raises Refused E_ROTATION_UNDERWAY, E_INVALID_PARAMETER.
    """
    if end is not None and end not in get_args(End):
        raise Refused("E_INVALID_PARAMETER", f"end={end[:40]!r} is not known; it is `old`, `newest`, or left out")
    numbers = [one.number for one in live]
    if end == "old":
        return RotationPlan(last + 1, numbers, ())
    if end == "newest":
        return RotationPlan(last + 1, numbers[:1], ())
    ending = next((one.ends_at for one in live[1:]), None)
    if ending is not None:
        raise Refused(
            "E_ROTATION_UNDERWAY",
            f"{trigger_id} has two secrets until {ending.isoformat(timespec='seconds')}, and a third would end the one "
            "that its sender may still use; wait until then, or say which may end now: `old` (it leaked, or nobody "
            "uses it any more) or `newest` (it never reached its sender)",
            details={"trigger_id": trigger_id, "old_secret_ends_at": ending},
        )
    return RotationPlan(last + 1, (), numbers)
