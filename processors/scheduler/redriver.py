"""The pace of redrives: at each look the letters whose time has come, each as a run of the catalog of now.

Any number of schedulers may look: a step that another one took changes nothing.
"""

from collections.abc import Sequence

import structlog

from processors.ports.measures import Measures
from processors.ports.redrives import Redrives, Step
from processors.ports.runs import Grant
from processors.runtime.current_catalog import CurrentCatalog
from processors.runtime.redriving import step_of

_log = structlog.get_logger("redriver")


class Redriver:
    def __init__(self, redrives: Redrives, catalog: CurrentCatalog, measures: Measures) -> None:
        self._redrives = redrives
        self._catalog = catalog
        self.measures = measures

    async def look(self) -> Sequence[Grant]:
        """One step of each order that is due. Raises `Unavailable`."""
        grants: list[Grant] = []
        for redrive in await self._redrives.due():
            letters = await self._redrives.waiting(redrive)
            step = step_of(await self._catalog.get(), redrive, letters)
            grants += await self._redrives.commit(step)
            self._tell(step)
        return grants

    def _tell(self, step: Step) -> None:
        self.measures.count("letters_redriven_total", len(step.redriven))
        for letter in step.refused:
            _log.warning(
                "letter_not_redriven",
                redrive=step.redrive.redrive_id,
                dead_letter=letter.dead_letter_id,
                code=letter.error_code,
            )
