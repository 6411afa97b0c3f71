"""The pace of redrives: at each look the letters whose time has come, each as a run of the catalog of now.

Any number of schedulers may look: a step that another one took changes nothing.
"""

from collections.abc import Sequence

import structlog

from processors.ports.measures import Measures
from processors.ports.redrives import Redrives, Step
from processors.ports.runs import Grant
from processors.ports.storage import Storage
from processors.runtime.current_catalog import CurrentCatalog
from processors.runtime.redriving import step_of
from schemas.errors import Refused
from schemas.stored_bodies import Reference

_log = structlog.get_logger("redriver")


class Redriver:
    """`storage` None: no storage is set, and letters whose data lies in one are not redriven."""

    def __init__(
        self, redrives: Redrives, catalog: CurrentCatalog, measures: Measures, storage: Storage | None = None
    ) -> None:
        self._redrives = redrives
        self._catalog = catalog
        self.measures = measures
        self._storage = storage

    async def look(self) -> Sequence[Grant]:
        """One step of each order that is due. Raises `Unavailable`."""
        grants: list[Grant] = []
        for redrive in await self._redrives.due():
            letters = await self._redrives.waiting(redrive)
            step = await step_of(await self._catalog.get(), redrive, letters, self._stored)
            if len(step.redriven) + len(step.refused) < len(letters):
                _log.warning("redrive_waits", redrive=redrive.redrive_id, reason="the storage of its data is away")
            if step.redriven or step.refused:
                grants += await self._redrives.commit(step)
                self._tell(step)
        return grants

    async def _stored(self, reference: Reference) -> bytes:
        if self._storage is None:
            raise Refused(
                "E_STORED_BODY_MISSING", "the data lies in storage, and no storage_url is set for the scheduler"
            )
        return await self._storage.get(reference)

    def _tell(self, step: Step) -> None:
        self.measures.count("letters_redriven_total", len(step.redriven))
        for letter in step.refused:
            _log.warning(
                "letter_not_redriven",
                redrive=step.redrive.redrive_id,
                dead_letter=letter.dead_letter_id,
                code=letter.error_code,
            )
