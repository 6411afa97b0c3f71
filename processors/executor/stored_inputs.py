"""Bodies whose input lies in storage begin once it is here; all others as ever.

What the executor says to a body meanwhile is kept in its order. A storage that is away costs no run anything: it
waits. An input that is not there any more blocks its run, which says so.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import ParamSpec

import msgspec

from processors.engine.requests import BodyEnd, BodyStatus
from processors.ports.bodies import Bodies, BodyListener, BodyStart
from processors.ports.storage import Storage
from processors.runtime.patience import Patience
from schemas.errors import Refused
from schemas.records import ErrorInfo
from schemas.stored_bodies import parsed

Said = ParamSpec("Said")
_MISSING = "E_STORED_BODY_MISSING"


@dataclass(slots=True)
class _Waiting:
    run: BodyStart
    task: "asyncio.Task[None]"
    said: list[Callable[[], None]] = field(default_factory=list)

    def keep(self, say: Callable[Said, None], *args: Said.args, **named: Said.kwargs) -> None:
        self.said.append(partial(say, *args, **named))


class StoredInputs:
    """Implements `Bodies` around others of a kind. Without storage no run can have its input there."""

    def __init__(self, bodies: Bodies, listener: BodyListener, storage: Storage | None) -> None:
        self._bodies = bodies
        self._listener = listener
        self._storage = storage
        self._waiting: dict[str, _Waiting] = {}

    def start(self, run: BodyStart) -> None:
        self._forget(run.run_id)
        if run.input_ref is None:
            self._bodies.start(run)
            return
        task = asyncio.get_running_loop().create_task(self._bring(run))
        self._waiting[run.run_id] = _Waiting(run, task)

    def deliver(
        self,
        run_id: str,
        fence: int,
        seq: int,
        item: str,
        outcome: str,
        value: str | None,
        error: ErrorInfo | None,
        at: datetime,
        go_until: float | None,
    ) -> None:
        self._way(run_id, self._bodies.deliver)(run_id, fence, seq, item, outcome, value, error, at, go_until)

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        self._way(run_id, self._bodies.run_step)(run_id, fence, item, attempt, token, key, timeout)

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        self._way(run_id, self._bodies.cancel_step)(run_id, fence, item)

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        """One whose body has not begun ends as it is."""
        waiting = self._waiting.get(run_id)
        if waiting is None:
            self._bodies.close_run(run_id, fence, cause)
        elif waiting.run.fence == fence:
            self._forget(run_id)
            end = BodyEnd(BodyStatus.CANCELLED, error=ErrorInfo("E_CANCELLED", "Cancelled", cause, retryable=False))
            asyncio.get_running_loop().call_soon(self._listener.turned, run_id, fence, 0, [], end)

    def drop(self, run_id: str, fence: int) -> None:
        waiting = self._waiting.get(run_id)
        if waiting is None:
            self._bodies.drop(run_id, fence)
        elif waiting.run.fence == fence:
            self._forget(run_id)

    async def aclose(self) -> None:
        for run_id in list(self._waiting):
            self._forget(run_id)
        await self._bodies.aclose()

    def _way(self, run_id: str, say: Callable[Said, None]) -> Callable[Said, None]:
        """How to say something to a body: at once, or once it has begun."""
        waiting = self._waiting.get(run_id)
        return say if waiting is None else partial(waiting.keep, say)

    def _forget(self, run_id: str) -> None:
        waiting = self._waiting.pop(run_id, None)
        if waiting is not None:
            waiting.task.cancel()

    async def _bring(self, run: BodyStart) -> None:
        patience = Patience("input_not_brought", run_id=run.run_id)
        while True:
            try:
                text = await self._input(run)
            except Refused as exc:
                self._waiting.pop(run.run_id)
                error = ErrorInfo(exc.code, "Refused", exc.message, retryable=False)
                self._listener.diverged(run.run_id, run.fence, error)
                return
            except Exception as exc:  # noqa: BLE001  whatever it is, it is logged, and the run has no part in it
                await patience.pause(exc)
            else:
                said = self._waiting.pop(run.run_id).said
                self._bodies.start(msgspec.structs.replace(run, input=text, input_ref=None))
                for call in said:
                    call()
                return

    async def _input(self, run: BodyStart) -> str:
        if self._storage is None:
            raise Refused(_MISSING, "the run's input lies in storage, and no storage_url is set for this executor")
        reference = parsed(run.input_ref or "")
        if reference is None or reference.project_id != run.project_id:
            raise Refused(_MISSING, "the run's input is told by no reference of its project")
        return (await self._storage.get(reference)).decode()


def with_stored_inputs(
    bodies: Mapping[str, Bodies], listener: BodyListener, storage: Storage | None
) -> dict[str, Bodies]:
    """Each kind of bodies, with its inputs brought first where they lie in storage."""
    return {kind: StoredInputs(one, listener, storage) for kind, one in bodies.items()}
