"""Hints: saying that a run was granted. Losing one costs a poll, so nobody waits for them."""

from collections.abc import Sequence
from typing import Protocol

from processors.ports.runs import Grant


class Hints(Protocol):
    def granted(self, grants: Sequence[Grant]) -> None:
        """After the commit that granted; returns at once."""
