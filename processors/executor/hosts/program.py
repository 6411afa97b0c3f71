"""A program is one workflow version of one bundle, as a host imports it; hosts are shared by programs of one key."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from processors.executor.hosts.held import HeldRun
from schemas.records import ErrorInfo


class HostKey(NamedTuple):
    """Versions share module names, so each digest has its own host; so has each project."""

    project_id: str
    digest: str
    interpreter: str


@dataclass(frozen=True, slots=True)
class Program:
    key: HostKey
    folder: Path
    entry: str
    workflow: str
    version: str
    redact_exempt: tuple[str, ...] = ()

    @property
    def name(self) -> tuple[str, str]:
        return self.workflow, self.version


@dataclass(slots=True, eq=False)
class Load:
    """The import of a program in a host; `asked` is monotonic."""

    program: Program
    asked: float
    done: bool = False
    error: ErrorInfo | None = None
    waiting: list[HeldRun] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        program = self.program
        return {
            "t": "LOAD",
            "path": str(program.folder),
            "entry": program.entry,
            "workflow": program.workflow,
            "version": program.version,
        }

    def settle(self, error: ErrorInfo | None) -> list[HeldRun]:
        """The import is over. Returns the runs that waited for it."""
        self.done, self.error = True, error
        waiting, self.waiting = self.waiting, []
        return waiting
