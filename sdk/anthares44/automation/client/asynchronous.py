"""The clients for asyncio, over its streams and not over threads.

Who waits for a run's result may wait for minutes, and thousands may at once: a thread for each would be a limit, and a
cancelled wait would leave its thread behind. The calls themselves are those of the blocking clients.
"""

import asyncio
import ssl
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from anthares44.automation.client.exchange import Address, Call, Pause, Reply, Request, Unreached
from anthares44.automation.client.operations import CancelStatus, SentEvent, SentWebhook, StartedRun
from anthares44.automation.client.shell import OfHook, OfService, Running, reason_of
from anthares44.automation.client.streams import BrokenReplyError, Stream

T = TypeVar("T")


class StreamConnections:
    """Carries calls out over streams that are kept while they are of use, each by one call at a time."""

    def __init__(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._timeout = timeout
        self._context = context
        self._idle: list[Stream] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def carry_out(self, call: Call[T]) -> T:
        running = Running(call)
        while (step := running.step) is not None:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            running.go_on(None if isinstance(step, Pause) else await self._send(step))
        return running.result

    async def aclose(self) -> None:
        idle, self._idle = self._idle, []
        for stream in idle:
            await stream.aclose()

    async def _send(self, request: Request) -> Reply | Unreached:
        """A kept stream that turns out to be closed says nothing of the service: another one is taken."""
        while True:
            kept = self._take()
            try:
                async with asyncio.timeout(self._timeout + request.wait):
                    return await self._exchange(kept, request)
            except (ConnectionError, EOFError) as exc:
                if kept is None:
                    return Unreached(reason_of(exc), exc)
            except (OSError, BrokenReplyError) as exc:  # TimeoutError is one
                return Unreached(reason_of(exc), exc)

    async def _exchange(self, kept: Stream | None, request: Request) -> Reply:
        stream = kept or await Stream.open(self._address, self._context)
        try:
            reply = await stream.exchange(request)
        except BaseException:
            stream.abort()  # in the middle of a reply: of no use to anybody
            raise
        if stream.is_reusable:
            self._idle.append(stream)
        else:
            stream.abort()
        return reply

    def _take(self) -> Stream | None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop and self._idle:
            raise RuntimeError("the client has connections on another event loop; close it there with aclose() first")
        self._loop = loop
        return self._idle.pop() if self._idle else None


class AsyncClient(OfService[StreamConnections]):
    """As `Client`, on an event loop: any number of calls at once, and a cancelled one leaves nothing behind here."""

    def _connect(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> StreamConnections:
        return StreamConnections(address, timeout, context)

    async def send_event(
        self,
        event_type: str,
        data: Any,
        *,
        key: str,
        partition_key: str | None = None,
        occurred_at: datetime | None = None,
        correlation_id: str | None = None,
    ) -> SentEvent:
        """As `Client.send_event`."""
        call = self._operations.send_event(
            event_type,
            data,
            key=key,
            partition_key=partition_key,
            occurred_at=occurred_at,
            correlation_id=correlation_id,
        )
        return await self._connections.carry_out(call)

    async def start(
        self, workflow_id: str, run_input: Any = None, *, key: str, version: str | None = None
    ) -> StartedRun:
        """As `Client.start`."""
        given = {} if run_input is None else run_input
        return await self._connections.carry_out(self._operations.start(workflow_id, given, key=key, version=version))

    async def result(self, run_id: str, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109  an end of its own
        """As `Client.result`. When the time is over RunNotEnded tells where the run is, as `asyncio.timeout` cannot."""
        return await self._connections.carry_out(self._operations.result(run_id, timeout=timeout))

    async def cancel(self, run_id: str, *, reason: str | None = None) -> CancelStatus:
        """As `Client.cancel`."""
        return await self._connections.carry_out(self._operations.cancel(run_id, reason=reason))

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncWebhookSender(OfHook[StreamConnections]):
    """As `WebhookSender`, on an event loop."""

    def _connect(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> StreamConnections:
        return StreamConnections(address, timeout, context)

    async def send(self, payload: Any, *, key: str) -> SentWebhook:
        """As `WebhookSender.send`."""
        return await self._connections.carry_out(self._hook.send(payload, key=key))

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
