"""False alarms: sessions that were closed because their process seemed gone, while it was there.

Told by the schedulers' own log lines, and judged by what we know ourselves: whom we killed, and when.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from ops.local.role_process import RoleProcess
from tests.chaos.faults import Fault
from tests.chaos.plan import Kind

# A closing belongs to a kill of that process if it comes this soon after it, and to one kill belongs one closing.
BELONGS_SECONDS = 60.0
KILLS = frozenset({Kind.EXECUTOR_KILLED, Kind.ALL_EXECUTORS_KILLED})
Closing = tuple[float, str]


def closings(processes: Iterable[RoleProcess], noticed_by: str) -> list[Closing]:
    """When which process's session was closed, and it was noticed in this way."""
    return [
        (datetime.fromisoformat(line["timestamp"]).timestamp(), str(line["owner"]).removeprefix("local-"))
        for process in processes
        if process.role == "scheduler" and process.log.exists()
        for line in process.lines()
        if line.get("event") == "session_closed" and line.get("noticed_by") == noticed_by
    ]


def false_alarms(closed: Iterable[Closing], faults: Sequence[Fault]) -> list[Closing]:
    """Closings that no kill of ours explains."""
    kills = [(one.at, target) for one in faults if one.kind in KILLS for target in one.target.split(", ")]
    unexplained = []
    for at, owner in sorted(closed):
        kill = next((one for one in kills if one[1] == owner and one[0] <= at < one[0] + BELONGS_SECONDS), None)
        if kill is None:
            unexplained.append((at, owner))
        else:
            kills.remove(kill)
    return unexplained
