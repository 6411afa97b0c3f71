"""The catalog as of now: one cheap question shared by everybody who asks at the same time.

Whoever gets a snapshot sees every publication that was committed before it asked.
"""

import asyncio

from processors.ports.catalog import Catalog, CatalogSnapshot


class CurrentCatalog:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._snapshot: CatalogSnapshot | None = None
        self._asking: asyncio.Task[CatalogSnapshot] | None = None
        self._next: asyncio.Task[CatalogSnapshot] | None = None

    async def get(self) -> CatalogSnapshot:
        """Raises `Unavailable` when Postgres is away."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            return await asyncio.shield(self._asking)
        # A question under way may have been answered before a publication: only the next one is certain.
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._asking))
        return await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Task[CatalogSnapshot]) -> CatalogSnapshot:
        await asyncio.wait([before])
        self._asking, self._next = self._next, None
        return await self._ask()

    async def _ask(self) -> CatalogSnapshot:
        try:
            version = await self._catalog.version()
            if self._snapshot is None or self._snapshot.version != version:
                self._snapshot = await self._catalog.snapshot()
            return self._snapshot
        finally:
            if self._asking is asyncio.current_task():
                self._asking = None
