"""The clients that block, over `http.client`.

They may be used from several threads at once: each call has a connection of its own while it lasts. Redirects are not
followed, so that neither token nor body goes to another address.
"""

import http.client
import ssl
import time
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from anthares44.automation.client.exchange import Address, Call, Pause, Reply, Request, Unreached
from anthares44.automation.client.operations import CancelStatus, SentEvent, SentWebhook, StartedRun
from anthares44.automation.client.shell import OfHook, OfService, Running, reason_of

T = TypeVar("T")

_GONE = (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest)


class Connections:
    """Carries calls out over connections that are kept while they are of use."""

    def __init__(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._timeout = timeout
        self._context = context
        self._idle: list[http.client.HTTPConnection] = []

    def carry_out(self, call: Call[T]) -> T:
        running = Running(call)
        while (step := running.step) is not None:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            running.go_on(None if isinstance(step, Pause) else self._send(step))
        return running.result

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _send(self, request: Request) -> Reply | Unreached:
        """A kept connection that turns out to be closed says nothing of the service: another one is taken."""
        while True:
            connection, is_kept = self._take()
            try:
                reply = self._exchange(connection, request)
            except (OSError, http.client.HTTPException) as exc:
                connection.close()
                if is_kept and isinstance(exc, _GONE):
                    continue
                return Unreached(reason_of(exc), exc)
            except BaseException:
                connection.close()  # in the middle of a reply: of no use to anybody
                raise
            if connection.sock is not None:  # http.client drops it where the service said that it closes
                self._idle.append(connection)
            return reply

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        try:
            return self._idle.pop(), True
        except IndexError:
            address = self._address
        if self._context is not None:
            return http.client.HTTPSConnection(address.host, address.port, context=self._context), False
        return http.client.HTTPConnection(address.host, address.port), False

    def _exchange(self, connection: http.client.HTTPConnection, request: Request) -> Reply:
        connection.timeout = self._timeout + request.wait
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        headers = {name: value.encode() for name, value in request.headers.items()}
        connection.request(request.method, request.target, body=request.body, headers=headers)
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, told, response.read())


class Client(OfService[Connections]):
    """One project of one service. `timeout` (seconds) bounds each wait for the other side; `dumps` writes data and
    inputs, once a call; `loads` reads answers.
    """

    def _connect(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> Connections:
        return Connections(address, timeout, context)

    def send_event(
        self,
        event_type: str,
        data: Any,
        *,
        key: str,
        partition_key: str | None = None,
        occurred_at: datetime | None = None,
        correlation_id: str | None = None,
    ) -> SentEvent:
        """Publish an event. It is durable when this returns; each trigger of its type makes a run of it.

        `key` names the event for 24 hours: sent again, the same data is the same event. `partition_key` is what keeps
        its order; without it, the key. Raises ServiceError.
        """
        call = self._operations.send_event(
            event_type,
            data,
            key=key,
            partition_key=partition_key,
            occurred_at=occurred_at,
            correlation_id=correlation_id,
        )
        return self._connections.carry_out(call)

    def start(self, workflow_id: str, run_input: Any = None, *, key: str, version: str | None = None) -> StartedRun:
        """Start a run; with a key that was used before, find the first run again. Raises ServiceError."""
        given = {} if run_input is None else run_input
        return self._connections.carry_out(self._operations.start(workflow_id, given, key=key, version=version))

    def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        """The run's result once it has succeeded, which is waited for: `timeout` seconds, without end by default.

        Raises RunDidNotSucceed, RunNotEnded when the time is over, ServiceError.
        """
        return self._connections.carry_out(self._operations.result(run_id, timeout=timeout))

    def cancel(self, run_id: str, *, reason: str | None = None) -> CancelStatus:
        """Ask that a run ends; `reason` is kept. Raises ServiceRefused E_RUN_ENDED where it ended otherwise before."""
        return self._connections.carry_out(self._operations.cancel(run_id, reason=reason))

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WebhookSender(OfHook[Connections]):
    """Sends to one webhook trigger. `url` is its whole address and `secret` what was shown when it was published."""

    def _connect(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> Connections:
        return Connections(address, timeout, context)

    def send(self, payload: Any, *, key: str) -> SentWebhook:
        """Written once; each try carries a fresh signature of the same bytes and the same key. Raises ServiceError."""
        return self._connections.carry_out(self._hook.send(payload, key=key))

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
