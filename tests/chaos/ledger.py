"""What the steps did, told by the steps alone: files that they append to, read while they grow.

Nothing of the product's own records is in here. An attempt has a token; its lines are `began` and `effect`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Effort:
    """One attempt of one step as its process saw it. Times are of the wall clock."""

    key: str
    token: str
    pid: int
    began: float
    applied: float | None = None


class Ledger:
    """`efforts` by token and `of_key` in the order of reading; `read` takes what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._open: dict[str, Effort] = {}
        self.efforts: dict[str, Effort] = {}
        self.of_key: dict[str, list[Effort]] = defaultdict(list)

    def read(self) -> None:
        for path in self._folder.glob("*.log"):
            begin = self._read.get(path, 0)
            if path.stat().st_size > begin:
                with path.open("rb") as file:
                    file.seek(begin)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                self._read[path] = begin + len(whole)
                self._take(int(path.name.partition("-")[0]), whole.decode().splitlines())

    def in_flight(self, pids: Collection[int]) -> set[str]:
        """Keys of steps that have begun in these processes and had no effect yet."""
        return {one.key for one in self._open.values() if one.pid in pids}

    def began_again(self, keys: Iterable[str], after: float) -> dict[str, float]:
        """Of these steps, when the next attempt began."""
        found: dict[str, float] = {}
        for key in keys:
            later = [one.began for one in self.of_key[key] if one.began > after]
            if later:
                found[key] = min(later)
        return found

    def _take(self, pid: int, lines: Iterable[str]) -> None:
        for line in lines:
            word, at, key, token = line.split("\t")
            if word == "began":
                effort = self.efforts[token] = self._open[token] = Effort(key, token, pid, float(at))
                self.of_key[key].append(effort)
            else:
                self._open.pop(token).applied = float(at)
