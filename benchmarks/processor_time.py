"""CPU seconds of processes with everything below them, living or ended, from /proc (Linux)."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of `stat` behind the name: the parent; own user and system time, and those of children that have ended.
_PARENT, _USED = 1, slice(11, 15)


def processor_seconds(pid: int) -> float:
    """User and system time of a process and everything below it, in seconds."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue  # it ended while we looked
        number = int(stat.parent.name)
        children.setdefault(int(fields[_PARENT]), []).append(number)
        used[number] = sum(map(int, fields[_USED])) / _TICKS
    waiting, total = [pid], 0.0
    while waiting:
        one = waiting.pop()
        total += used.get(one, 0.0)
        waiting += children.get(one, [])
    return total


def own_seconds(pid: int) -> float:
    """User and system time of one process alone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return sum(map(int, fields[_USED][:2])) / _TICKS


def _machine() -> list[int]:
    """Ticks of all cores: user, nice, system, idle, waiting for a disk, interrupts (two kinds), stolen."""
    return [int(field) for field in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]


class Meter:
    """CPU seconds by part since it was made, with everything below each part.

    The executor's children are the part `hosts`; what this process itself used is the part `client`.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._machine = _machine()
        self._before = self._now()

    def used(self) -> dict[str, float]:
        return {part: now - self._before[part] for part, now in self._now().items()}

    def cores(self) -> dict[str, float]:
        """What the machine's cores did: for us, for others, for its host; nothing, waiting for a disk or not."""
        passed = [(now - before) / _TICKS for before, now in zip(self._machine, _machine(), strict=True)]
        user, nice, system, idle, waiting, irq, softirq, stolen = passed
        ours = sum(self.used().values())
        seconds = sum(passed) / (os.cpu_count() or 1)
        spent = {
            "ours": ours,
            "others": user + nice + system + irq + softirq - ours,
            "stolen": stolen,
            "disk": waiting,
            "idle": idle,
        }
        return {what: one / seconds for what, one in spent.items()}

    def per_1000(self, runs: int) -> dict[str, float]:
        return {part: 1e3 * seconds / runs for part, seconds in self.used().items()}

    def _now(self) -> dict[str, float]:
        seconds = {part: processor_seconds(pid) for part, pid in self._pids.items()}
        if "executor" in seconds:
            own = own_seconds(self._pids["executor"])
            seconds["hosts"], seconds["executor"] = seconds["executor"] - own, own
        return seconds | {"client": time.process_time()}
