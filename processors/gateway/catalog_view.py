"""The catalog as requests see it: a publication that committed before a request came is in force for it."""

from collections.abc import Mapping, Sequence

from processors.gateway.lookups import SharedLookup
from processors.ports.catalog import Catalog, CatalogSnapshot
from schemas.errors import Broken


class CatalogView:
    """Asks for the version once for all requests that wait, and loads a snapshot only when it changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._snapshot: CatalogSnapshot | None = None
        self._lookup = SharedLookup[None, CatalogSnapshot](self._refresh)

    async def current(self) -> CatalogSnapshot:
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
