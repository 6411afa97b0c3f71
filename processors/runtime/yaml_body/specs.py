"""The definitions of YAML workflows, by id: immutable, kept, and asked for once however many runs wait.

What cannot be read now is asked for again for as long as a run waits: no run is at fault when Postgres is away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from processors.runtime.patience import Patience
from schemas.errors import Unavailable
from topology.workflows import WorkflowSpec

FindDefinition = Callable[[int], Awaitable[WorkflowSpec]]
MOST_KEPT = 1000


@dataclass(eq=False, slots=True)
class _Question:
    task: asyncio.Task[WorkflowSpec]
    waiting: int = 0


class Specs:
    def __init__(self, find: FindDefinition) -> None:
        self._find = find
        self._kept: dict[int, WorkflowSpec] = {}
        self._questions: dict[int, _Question] = {}
        self._tasks: set[asyncio.Task[WorkflowSpec]] = set()

    async def of(self, definition_id: int) -> WorkflowSpec:
        """Raises whatever `find` raises, but for Unavailable. The question ends with the last one who waits."""
        spec = self._kept.get(definition_id)
        if spec is not None:
            return spec
        question = self._questions.get(definition_id)
        if question is None:
            question = self._questions[definition_id] = self._begin(definition_id)
        question.waiting += 1
        try:
            return await asyncio.shield(question.task)
        finally:
            question.waiting -= 1
            if not question.waiting:
                del self._questions[definition_id]
                question.task.cancel()

    async def aclose(self) -> None:
        """Nobody may be waiting any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, definition_id: int) -> _Question:
        task = asyncio.get_running_loop().create_task(self._ask(definition_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return _Question(task)

    async def _ask(self, definition_id: int) -> WorkflowSpec:
        patience = Patience("definition_not_read", definition_id=definition_id)
        while True:
            try:
                spec = await self._find(definition_id)
            except Unavailable as exc:
                await patience.pause(exc)
            else:
                break
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[definition_id] = spec
        return spec
