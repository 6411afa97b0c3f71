"""The catalog as of now: whoever gets a snapshot sees every publication that was committed before it asked."""

from processors.ports.catalog import Catalog, CatalogSnapshot


class CurrentCatalog:
    """Asks for the version each time, and loads a snapshot only when it changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._snapshot: CatalogSnapshot | None = None

    async def get(self) -> CatalogSnapshot:
        """Raises `Unavailable` when Postgres is away."""
        version = await self._catalog.version()
        if self._snapshot is None or self._snapshot.version != version:
            self._snapshot = await self._catalog.snapshot()
        return self._snapshot
