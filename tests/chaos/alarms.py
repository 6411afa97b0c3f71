"""False alarms: sessions that were closed because their process seemed gone, while it was there.

Told by the schedulers' own log lines, and judged by what we know ourselves: whom we killed, and when.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from ops.local.role_process import RoleProcess
from tests.chaos.faults import Fault
from tests.chaos.plan import Kind

# A closing belongs to a kill of that process if it comes this soon after it.
BELONGS_SECONDS = 60.0
KILLS = frozenset({Kind.EXECUTOR_KILLED, Kind.ALL_EXECUTORS_KILLED})


def closings(processes: Iterable[RoleProcess], noticed_by: str) -> list[tuple[float, str]]:
    """When which process's session was closed, and it was noticed in this way."""
    return [
        (datetime.fromisoformat(line["timestamp"]).timestamp(), str(line["owner"]).removeprefix("local-"))
        for process in processes
        if process.role == "scheduler" and process.log.exists()
        for line in process.lines()
        if line.get("event") == "session_closed" and line.get("noticed_by", "lease") == noticed_by
    ]


def false_alarms(processes: Iterable[RoleProcess], faults: Sequence[Fault]) -> int:
    kills = [(one.target, one.at) for one in faults if one.kind in KILLS]
    return sum(
        not any(target in (owner, "both") and at <= closed < at + BELONGS_SECONDS for target, at in kills)
        for closed, owner in closings(processes, "probe")
    )
