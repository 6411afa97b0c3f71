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

from anthares44.automation.client.exchange import Address, Call, Pause, Reply, Request, Unreached, read_address
from anthares44.automation.client.operations import (
    CancelStatus,
    Hook,
    Operations,
    SentEvent,
    SentWebhook,
    StartedRun,
)
from anthares44.automation.client.retries import Retries
from anthares44.automation.client.texts import Dumps, Loads, plain_json, read_json

T = TypeVar("T")

SERVICE = "one such as https://automation.example"
HOOK = "the webhook's whole address, such as https://automation.example/v1/pj_shop/trg_order_paid"

_GONE = (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest)


class Client:
    """One project of one service. `timeout` (seconds) bounds each wait for the other side; `dumps` writes data and
    inputs, once a call; `loads` reads answers.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = 10.0,
        retries: Retries | None = None,
        dumps: Dumps = plain_json,
        loads: Loads = read_json,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        address = read_address(url, SERVICE)
        self._connections = Connections(address, timeout, ssl_context)
        self._operations = Operations(address, token, dumps, loads, retries or Retries())

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


class WebhookSender:
    """Sends to one webhook trigger. `url` is its whole address and `secret` what was shown when it was published."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        timeout: float = 10.0,
        retries: Retries | None = None,
        dumps: Dumps = plain_json,
        loads: Loads = read_json,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        address = read_address(url, HOOK)
        self._connections = Connections(address, timeout, ssl_context)
        self._hook = Hook(address, secret, dumps, loads, retries or Retries())

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


class Connections:
    """Carries calls out over connections that are kept while they are of use."""

    def __init__(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._timeout = timeout
        self._context = (context or ssl.create_default_context()) if address.is_secure else None
        self._idle: list[http.client.HTTPConnection] = []

    def carry_out(self, call: Call[T]) -> T:
        answer: Reply | Unreached | None = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

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


def reason_of(exc: Exception) -> str:
    """Why no reply came, to be read after an address."""
    if isinstance(exc, TimeoutError):
        return "did not answer in time"
    if isinstance(exc, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(exc, ssl.SSLError):
        return f"did not agree on TLS ({exc.reason or exc})"
    if isinstance(exc, (*_GONE, EOFError, http.client.IncompleteRead)):
        return "closed the connection before its answer was whole"
    return f"cannot be talked to ({exc or type(exc).__name__})"
