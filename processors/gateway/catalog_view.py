"""The catalog as requests see it: a publication that committed before a request came is in force for it.

Doors decide by the snapshot at hand, and their transaction finds out whether it is in force. Who needs the newest one
before that asks: the version is asked once for all requests that wait, and under load not more often than every few
milliseconds: the requests of that time share one question. A snapshot is loaded only when it changed.
"""

from collections.abc import Mapping, Sequence

from processors.gateway.lookups import SharedLookup
from processors.ports.catalog import Catalog, CatalogSnapshot
from schemas.errors import Broken

_SPACING = 0.004  # seconds; a question costs about as much as a whole request


class CatalogView:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._snapshot: CatalogSnapshot | None = None
        self._lookup = SharedLookup[None, CatalogSnapshot](self._refresh, spacing=_SPACING)

    @property
    def at_hand(self) -> CatalogSnapshot | None:
        """The last one that was loaded; it may not be in force any more."""
        return self._snapshot

    async def get(self) -> CatalogSnapshot:
        """Raises `Unavailable`."""
        snapshot = await self._lookup.get(None)
        if snapshot is None:
            raise Broken("E_INTERNAL", "the catalog gave no snapshot")
        return snapshot

    async def _refresh(self, keys: Sequence[None]) -> Mapping[None, CatalogSnapshot]:
        version = await self._catalog.version()
        if self._snapshot is None or self._snapshot.version != version:
            self._snapshot = await self._catalog.snapshot()
        return dict.fromkeys(keys, self._snapshot)
