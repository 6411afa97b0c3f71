"""Storage for bodies that are too large for a record: put before anything refers to them, read by who needs them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from schemas.stored_bodies import Reference, StoredBody


class Storage(Protocol):
    async def put(self, body: StoredBody) -> None:
        """Durable when it returns; a repetition puts the same object. Raises `Unavailable` E_STORAGE_UNAVAILABLE."""

    async def get(self, reference: Reference) -> bytes:
        """The content, proven by its hash. Raises `Unavailable` E_STORAGE_UNAVAILABLE, and `Refused`:
        E_STORED_BODY_MISSING where it is not there or is another, E_BODY_TOO_LARGE where it is more than doors take.
        """

    async def days(self) -> Sequence[str]:
        """The days, oldest first, on which something was put that is still there."""

    async def stored_on(self, day: str) -> Sequence[Reference]:
        """What was put on a day and is still there."""

    async def remove(self, references: Collection[Reference]) -> None:
        """Remove objects; one that is not there is removed."""
