"""One kept HTTP connection to one service, with errors in the product's own words.

Redirects are not followed, so that a token never travels to another address.
"""

import http.client
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from schemas.errors import Refused, Unavailable

_API_SUFFIX = "/v1/automation"
_CARRIABLE = re.compile("[^\x00-\x1f\x7f\ud800-\udfff]*")
_CARRIED = {
    "Authorization": ("E_CREDENTIALS", "the token"),
    "A44-Idempotency-Key": ("E_IDEMPOTENCY_KEY_INVALID", "the idempotency key"),
}
_GONE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, http.client.CannotSendRequest)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes


def service_address(url: str) -> str:
    """The address without a trailing slash or the API's own path; `E_CONFIG` where it is none."""
    address = url.strip().rstrip("/").removesuffix(_API_SUFFIX)
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Refused(
            "E_CONFIG", f"the service's address is {url!r}; expected one such as http://127.0.0.1:8044 (--url, A44_URL)"
        )
    try:
        parts.port  # noqa: B018  the attribute checks the number
    except ValueError as exc:
        raise Refused("E_CONFIG", f"the service's address is {url!r}; its port is not a number up to 65535") from exc
    if parts.username or parts.password:
        raise Refused("E_CONFIG", "the service's address holds a user or password; the token is the only credential")
    return address


class Exchange:
    """Requests and their replies. `timeout` (seconds) bounds each wait for the other side."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = service_address(url)
        self._parts = urlsplit(self.url)
        self._timeout = timeout
        self._kept: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def send(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], *, wait: float = 0.0
    ) -> Reply:
        """One request and its whole reply. `wait` is added to the timeout: time the service may take on purpose."""
        reused = self._kept is not None
        try:
            return self._send(method, target, body, headers, wait)
        except _GONE as exc:
            self.close()
            if not reused:
                raise self._unreachable(exc) from exc
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise self._unreachable(exc) from exc
        try:
            return self._send(method, target, body, headers, wait)
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise self._unreachable(exc) from exc

    def _send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], wait: float) -> Reply:
        if self._kept is None:
            self._kept = self.connection(self._timeout)
        connection = self._kept
        connection.timeout = self._timeout + wait
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(method, self._parts.path + target, body=body, headers=_encoded(headers))
        response = connection.getresponse()
        return Reply(response.status, response.read())

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """A connection of its own, for a stream."""
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def open(
        self, target: str, headers: Mapping[str, str], timeout: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Start a GET whose reply is read piece by piece; the caller closes the connection."""
        encoded = _encoded(headers)
        connection = self.connection(timeout)
        try:
            connection.request("GET", self._parts.path + target, headers=encoded)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            raise self._unreachable(exc) from exc

    def _unreachable(self, exc: Exception) -> Unavailable:
        return Unavailable("E_UNAVAILABLE", f"{self.url} {_reason(exc)}; is the gateway up, and is this its address?")


def _encoded(headers: Mapping[str, str]) -> dict[str, bytes]:
    """As UTF-8, which is what the service reads; the library would take Latin-1. Refuses what no header can carry."""
    encoded = {}
    for name, value in headers.items():
        if not _CARRIABLE.fullmatch(value):
            code, what = _CARRIED.get(name, ("E_INVALID_PARAMETER", f"the header {name}"))
            raise Refused(code, f"{what} holds a line end, another control character or broken text; give it anew")
        encoded[name] = value.encode()
    return encoded


def _reason(exc: Exception) -> str:
    if isinstance(exc, TimeoutError):
        return "did not answer in time"
    if isinstance(exc, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(exc, socket.gaierror):
        return f"has no known address ({exc.strerror})"
    if isinstance(exc, ssl.SSLError):
        return f"did not agree on TLS ({exc.reason or exc})"
    if isinstance(exc, _GONE):
        return "closed the connection without an answer"
    return f"cannot be talked to ({exc})"
