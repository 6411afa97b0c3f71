"""What clients of both kinds are made of around their calls; each kind waits and holds its sockets in its own way."""

import http.client
import ssl
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from anthares44.automation.client.exchange import Address, Call, Pause, Reply, Request, Unreached, read_address
from anthares44.automation.client.operations import Hook, Operations
from anthares44.automation.client.retries import Retries
from anthares44.automation.client.texts import Dumps, Loads, plain_json, read_json

T = TypeVar("T")
ConnectionsT = TypeVar("ConnectionsT")

_SERVICE = "one such as https://automation.example"
_HOOK = "the webhook's whole address, such as https://automation.example/v1/pj_shop/trg_order_paid"
_GONE = (http.client.RemoteDisconnected, ConnectionError, EOFError, http.client.IncompleteRead)


class Connecting(ABC, Generic[ConnectionsT]):
    """A client of some kind: how it connects is the kind's own."""

    @abstractmethod
    def _connect(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> ConnectionsT: ...


class OfService(Connecting[ConnectionsT]):
    """By the address and the token of a project."""

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
        address = read_address(url, _SERVICE)
        self._operations = Operations(address, token, dumps, loads, retries or Retries())
        self._connections = self._connect(address, timeout, _context(address, ssl_context))


class OfHook(Connecting[ConnectionsT]):
    """By the address and the secret of a webhook trigger."""

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
        address = read_address(url, _HOOK)
        self._hook = Hook(address, secret, dumps, loads, retries or Retries())
        self._connections = self._connect(address, timeout, _context(address, ssl_context))


class Running(Generic[T]):
    """A call under way: `step` is what it asks for next; once that is None, `result` is what came of it."""

    result: T

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self.step: Request | Pause | None = None
        self.go_on(None)

    def go_on(self, answer: Reply | Unreached | None) -> None:
        """Tell what came of the step; None after a pause. Raises what the call raises."""
        try:
            self.step = self._call.send(answer)
        except StopIteration as end:
            self.step, self.result = None, end.value


def _context(address: Address, given: ssl.SSLContext | None) -> ssl.SSLContext | None:
    return (given or ssl.create_default_context()) if address.is_secure else None


def reason_of(exc: Exception) -> str:
    """Why no reply came, to be read after an address."""
    if isinstance(exc, TimeoutError):
        return "did not answer in time"
    if isinstance(exc, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(exc, ssl.SSLError):
        return f"did not agree on TLS ({exc.reason or exc})"
    if isinstance(exc, (*_GONE, http.client.CannotSendRequest)):
        return "closed the connection before its answer was whole"
    return f"cannot be talked to ({exc or type(exc).__name__})"
