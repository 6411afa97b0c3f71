"""What the demo shows while it runs: live bars on a terminal, plain lines elsewhere. Progress goes to stderr."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class Display:
    """`tick` moves a bar; a bar appears when it is first named."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._begun = time.monotonic()
        self._bars: dict[str, TaskID] = {}
        self._shown: dict[str, int] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<34}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._progress.start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def note(self, text: str) -> None:
        if self._live:
            self._progress.console.print(f"[dim]{self.seconds:5.1f}s[/dim] {text}")
        else:
            self._console.print(f"{self.seconds:5.1f}s {text}", markup=False)

    def tick(self, name: str, done: int, total: int) -> None:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._bars[name], completed=done, total=total)
        tenth = 10 * done // max(total, 1)
        if not self._live and self._shown.get(name) != tenth:
            self._shown[name] = tenth
            self.note(f"{name}: {done}/{total}")

    def close(self) -> None:
        self._progress.stop()
