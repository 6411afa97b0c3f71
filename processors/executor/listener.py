"""What bodies tell, turned into the engine's commands."""

from collections.abc import Callable, Collection, Sequence

from processors.engine import commands
from processors.engine.requests import BodyEnd, Request
from processors.ports.journal import LateAttempt
from schemas.records import ErrorInfo

Post = Callable[[str, int, commands.Command], None]


class Listener:
    """Implements `BodyListener`; `post` puts a command before the executor, `keep` what came too late for one."""

    def __init__(self, post: Post, keep: Callable[[LateAttempt], None]) -> None:
        self._post = post
        self._keep = keep

    def turned(self, run_id: str, fence: int, after: int, requests: Sequence[Request], end: BodyEnd | None) -> None:
        self._post(run_id, fence, commands.Turn(after, requests, end))

    def succeeded(self, run_id: str, fence: int, item: str, attempt: int, token: str, value: str, cost: float) -> None:
        self._post(run_id, fence, commands.Done(item, attempt, token, value, cost))

    def failed(
        self, run_id: str, fence: int, item: str, attempt: int, token: str, error: ErrorInfo, cost: float
    ) -> None:
        self._post(run_id, fence, commands.Failed(item, attempt, token, error, cost))

    def diverged(self, run_id: str, fence: int, error: ErrorInfo) -> None:
        self._post(run_id, fence, commands.Diverged(error))

    def late(
        self,
        run_id: str,
        fence: int,
        item: str,
        attempt: int,
        status: str,
        value: str | None,
        error: ErrorInfo | None,
        cost: float,
    ) -> None:
        self._keep(LateAttempt(run_id, fence, item, attempt, status, value, error, None, cost))

    def lost(
        self,
        runs: Sequence[tuple[str, int]],
        reason: str,
        *,
        suspected: bool = True,
        unbegun: Collection[tuple[str, str]] = (),
    ) -> None:
        for run_id, fence in runs:
            items = frozenset(item for owner, item in unbegun if owner == run_id)
            self._post(run_id, fence, commands.BodyLost(reason, suspected, items))
