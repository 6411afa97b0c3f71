"""Storage in memory that may be away: what was put is there, whoever dies."""

from schemas.errors import Refused, Unavailable
from schemas.stored_bodies import Reference, StoredBody
from tests.simulation.memory.network import Network


class MemoryStorage:
    """The part of `Storage` that doors and ingest ask."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._bodies: dict[str, bytes] = {}
        self.is_up = True

    def keep(self, body: StoredBody) -> None:
        """Put by somebody outside, who goes on only once it is there."""
        self._bodies[str(body.reference)] = body.content

    async def get(self, reference: Reference) -> bytes:
        await self._network.hop()
        if not self.is_up:
            raise Unavailable("E_STORAGE_UNAVAILABLE", "the storage is away")
        try:
            return self._bodies[str(reference)]
        except KeyError:
            raise Refused("E_STORED_BODY_MISSING", f"{reference} is not there") from None
