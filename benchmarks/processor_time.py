"""CPU seconds of processes and their living children, from /proc (Linux)."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """User and system time of a process and everything below it that still lives, in seconds."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue  # it ended while we looked
        number = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(number)
        used[number] = (int(fields[11]) + int(fields[12])) / _TICKS
    waiting, total = [pid], 0.0
    while waiting:
        one = waiting.pop()
        total += used.get(one, 0.0)
        waiting += children.get(one, [])
    return total
