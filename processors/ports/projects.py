"""What projects have set for themselves: an operator's figures, which stand before those of the installation.

A project is known once it has a token, a workflow or figures of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

LONGEST_WINDOW: Final = 72.0  # hours
HIGHEST_RATE: Final = 1_000_000.0  # events a second
HIGHEST_REDRIVE_RATE: Final = 100_000.0  # letters a second
LOWEST_REDRIVE_RATE: Final = 0.001  # below that a redrive would be refused as if others took it all
FIGURES: Final = ("dedup_window_hours", "events_per_second", "redrive_rate")


@dataclass(frozen=True, slots=True)
class Figures:
    """None: the installation's. `updated_at` is None for a project that never had any of its own."""

    project_id: str
    dedup_window_hours: float | None
    events_per_second: float | None
    redrive_rate: float | None
    updated_at: datetime | None


class Projects(Protocol):
    """All of it raises `Unavailable` when Postgres is away."""

    async def rates(self) -> Mapping[str, float]:
        """How many events a second each project may send to a gateway; those without a limit are left out."""

    async def list_projects(self, after: str | None, limit: int) -> Sequence[Figures]:
        """The known projects by name, those behind `after`."""

    async def find(self, project_id: str) -> Figures | None:
        """None for a project that is not known."""

    async def change(
        self, project_id: str, figures: Mapping[str, float | None], actor: str, reason: str
    ) -> Figures | None:
        """Set some of its figures, by name; what they were and what they are now is audited in the same transaction.

        None, and nothing set, for a project that is not known.
        """
