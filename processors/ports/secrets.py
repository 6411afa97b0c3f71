"""Secrets of a project by reference (`sec_x`): read at the moment of use, never written anywhere."""

from typing import Protocol


class Secrets(Protocol):
    def get(self, project: str, name: str) -> str:
        """The secret's value now. Raises Refused E_SECRET_UNKNOWN, which says how to set it."""
