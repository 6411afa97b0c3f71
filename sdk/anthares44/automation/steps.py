"""`step`: what a body calls. Each call is requested at once, in the order of the calls.

A call returns a future: await it for the outcome, or gather several. A step that is never awaited still
runs. Step errors come out of the await as StepError.
"""

import asyncio
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from anthares44.automation.context import ATTEMPT
from anthares44.automation.durations import Duration
from anthares44.automation.errors import STEP_INSIDE_STEP, MisuseError
from anthares44.automation.loop import RunLoop
from anthares44.automation.options import Retry
from anthares44.automation.turns import Run

T = TypeVar("T")


def _current_run(call: str) -> Run:
    loop = _get_running_loop()
    if isinstance(loop, RunLoop):
        return loop.owner  # type: ignore[return-value]  # the host's
    attempt = ATTEMPT.get()
    if attempt is not None:
        raise MisuseError(
            f"{call} was called inside the step {attempt.item_id!r}; steps are started by the body only",
            code=STEP_INSIDE_STEP,
        )
    raise RuntimeError(f"{call} works only in the body of a workflow that the platform runs")


class Steps:
    __slots__ = ()

    @overload
    def run(
        self,
        step_id: str,
        *,
        timeout: Duration,
        fn: Callable[[], Awaitable[T]],
        retry: Retry | Mapping[str, Any] | None = None,
        compensate: Callable[..., Any] | None = None,
        exclusive: bool = False,
    ) -> "asyncio.Future[T]": ...

    @overload
    def run(
        self,
        step_id: str,
        *,
        timeout: Duration,
        fn: Callable[[], T],
        retry: Retry | Mapping[str, Any] | None = None,
        compensate: Callable[..., Any] | None = None,
        exclusive: bool = False,
    ) -> "asyncio.Future[T]": ...

    def run(
        self,
        step_id: str,
        *,
        timeout: Duration | None = None,
        fn: Callable[[], Any],
        retry: Retry | Mapping[str, Any] | None = None,
        compensate: Callable[..., Any] | None = None,
        exclusive: bool = False,
    ) -> "asyncio.Future[Any]":
        """Run `fn` as a step: recorded when it succeeds, tried again when it fails, never run again on resume.

        `timeout` is required and counts for each try. `retry` is {max, strategy, base, cap}: at most `max`
        tries (default 3), a wait of uniform(0, min(base * 2^(n-1), cap)) before each (1 s, 300 s).
        `compensate` undoes the step when the run fails later. `exclusive` asks a person before a second
        try whenever the outcome of the first is unknown.
        """
        return _current_run("step.run").request_step(
            step_id,
            timeout=timeout,
            retry=retry,
            compensate=compensate,
            exclusive=exclusive,
            fn=fn,
        )

    def sleep(self, step_id: str, duration: Duration) -> "asyncio.Future[None]":
        """Wait on record: the run gives back its place, and goes on after a restart as if nothing was."""
        return _current_run("step.sleep").request_sleep(step_id, duration)

    def as_completed(self, awaitables: Iterable[Awaitable[T]]) -> "Completions[T]":
        """The outcomes in the order in which they were recorded; `for` and `async for` both work.

        async for future in step.as_completed(futures):
            result = await future
        """
        _current_run("step.as_completed")
        return Completions(awaitables)


class Completions(Generic[T]):
    """Futures by completion. Each is yielded once, in an order that replays alike."""

    def __init__(self, awaitables: Iterable[Awaitable[T]]) -> None:
        self._done: deque[asyncio.Future[T]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        futures = [asyncio.ensure_future(awaitable) for awaitable in dict.fromkeys(awaitables)]
        self._left = len(futures)
        for future in futures:
            future.add_done_callback(self._completed)

    def _completed(self, future: "asyncio.Future[T]") -> None:
        self._done.append(future)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _next(self) -> "asyncio.Future[T]":
        while not self._done:
            if self._waiter is None or self._waiter.done():
                self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiter)
        return self._done.popleft()

    async def _next_result(self) -> T:
        return await (await self._next())

    def __iter__(self) -> Iterator[Awaitable[T]]:
        while self._left:
            self._left -= 1
            yield self._next_result()

    def __aiter__(self) -> AsyncIterator["asyncio.Future[T]"]:
        return self

    async def __anext__(self) -> "asyncio.Future[T]":
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next()


step = Steps()
